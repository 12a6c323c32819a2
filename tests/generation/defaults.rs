//! What the makers of a model suggest, through the C ABI: it holds where the caller sets nothing.

use std::{
    ffi::{CString, c_void},
    mem::MaybeUninit,
    ptr,
};

use mlxb::{
    GenerateOptions, Penalty, Sampling,
    ffi::{
        mlxb_event, mlxb_event_kind, mlxb_flow, mlxb_generate, mlxb_generate_options,
        mlxb_generate_options_init, mlxb_model, mlxb_model_generation_defaults, mlxb_model_load,
        mlxb_model_release, mlxb_status,
    },
};
use serde_json::json;

use crate::{run::run, tiny_model};

const PROMPT: [u32; 3] = [40, 41, 42];
const TOKENS: u64 = 40;

unsafe extern "C" fn take_ids(ids: *mut c_void, event: *const mlxb_event) -> i32 {
    // SAFETY: the event lives for the call, and `generate` passes a list of ids.
    let (ids, event) = unsafe { (&mut *ids.cast::<Vec<u32>>(), &*event) };
    if event.kind == mlxb_event_kind::MLXB_EVENT_TOKEN {
        ids.push(event.token);
    }
    mlxb_flow::MLXB_CONTINUE as i32
}

fn unset() -> mlxb_generate_options {
    let mut options = MaybeUninit::uninit();
    // SAFETY: it is writable for its size, and the function fills all of it.
    unsafe {
        mlxb_generate_options_init(options.as_mut_ptr(), size_of::<mlxb_generate_options>());
        options.assume_init()
    }
}

struct CModel(*mut mlxb_model);

impl CModel {
    fn load(folder: &std::path::Path) -> Self {
        let folder = CString::new(folder.to_str().unwrap()).unwrap();
        let mut model = ptr::null_mut();
        // SAFETY: the path ends with NUL, `model` is writable, the others may be NULL.
        let status = unsafe {
            mlxb_model_load(
                folder.as_ptr(),
                ptr::null(),
                &raw mut model,
                ptr::null_mut(),
            )
        };
        assert_eq!(status, mlxb_status::MLXB_OK);
        Self(model)
    }

    fn defaults(&self) -> mlxb_generate_options {
        let mut options = unset();
        // SAFETY: the model lives, the struct says its size.
        let status =
            unsafe { mlxb_model_generation_defaults(self.0, &raw mut options, ptr::null_mut()) };
        assert_eq!(status, mlxb_status::MLXB_OK);
        options
    }

    fn ids(&self, set: impl Fn(&mut mlxb_generate_options)) -> Vec<u32> {
        let mut options = unset();
        options.tokens = PROMPT.as_ptr();
        options.token_count = PROMPT.len();
        options.max_tokens = TOKENS as i64;
        set(&mut options);
        let mut ids = Vec::<u32>::new();
        // SAFETY: the model lives, the options point to what lives, the callback takes a list.
        let status = unsafe {
            mlxb_generate(
                self.0,
                ptr::null_mut(),
                &raw const options,
                Some(take_ids),
                (&raw mut ids).cast(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        assert_eq!(status, mlxb_status::MLXB_OK);
        ids
    }
}

impl Drop for CModel {
    fn drop(&mut self) {
        // SAFETY: it came from mlxb_model_load and is not used any more.
        unsafe { mlxb_model_release(self.0) };
    }
}

#[test]
fn the_makers_settings_hold_where_the_caller_sets_nothing() {
    let settings = json!({"do_sample": true, "temperature": 1.5, "top_k": 1,
        "repetition_penalty": 1.75});
    let folder = tiny_model::folder(3, &settings);
    let model = CModel::load(folder.path());

    let told = model.defaults();
    assert_eq!((told.temperature, told.top_k), (1.5, 1));
    assert_eq!(
        (told.repetition_penalty, told.repetition_context_size),
        (1.75, 20)
    );
    // What the file does not say has the library's own value, not "unset".
    assert_eq!(
        (told.top_p, told.min_p, told.min_tokens_to_keep),
        (1.0, 0.0, 1)
    );
    assert_eq!((told.xtc_probability, told.presence_penalty), (0.0, 0.0));

    // A top_k of 1 takes the most likely token, after the penalty.
    let same = tiny_model::load(3);
    let greedy = |penalty: Option<(f32, usize)>| {
        let mut sampling = Sampling::default();
        sampling.penalties.repetition = penalty.map(|(value, context_size)| Penalty {
            value,
            context_size,
        });
        let options = GenerateOptions {
            max_tokens: Some(TOKENS),
            sampling,
            ..GenerateOptions::default()
        };
        run(&same, None, &PROMPT, &options).1.ids
    };
    assert_eq!(model.ids(|_| {}), greedy(Some((1.75, 20))));
    assert_ne!(greedy(Some((1.75, 20))), greedy(None));

    // The caller's values win, neutral ones and zeros too.
    assert_eq!(
        model.ids(|options| options.repetition_penalty = 1.0),
        greedy(None)
    );
    assert_eq!(
        model.ids(|options| options.repetition_context_size = 0),
        greedy(Some((1.75, 0)))
    );
    assert_eq!(
        model.ids(|options| {
            options.repetition_penalty = 1.25;
            options.top_k = 0;
            options.temperature = 0.0;
        }),
        greedy(Some((1.25, 20)))
    );
    let free = |options: &mut mlxb_generate_options| options.top_k = 0;
    assert_ne!(model.ids(free), model.ids(free));
}
