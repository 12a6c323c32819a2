//! What running a model takes in memory, estimated from its shape alone.

/// What a piece of work takes beside what is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// What stays in use while it runs, and grows step by step.
    pub(crate) lasting_bytes: u64,
    /// What a single step takes. Steps follow one another, so of several pieces of work only the
    /// largest counts.
    pub(crate) step_bytes: u64,
}

impl Need {
    /// Of both together.
    pub(crate) fn beside(self, other: Self) -> Self {
        Self {
            lasting_bytes: self.lasting_bytes.saturating_add(other.lasting_bytes),
            step_bytes: self.step_bytes.max(other.step_bytes),
        }
    }

    pub(crate) fn total(self) -> u64 {
        self.lasting_bytes.saturating_add(self.step_bytes)
    }
}

/// A generation, as far as its need goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Tokens whose KV state is there already.
    pub(crate) kept: u64,
    /// Whether others hold that state too: it is copied then when the first token is added.
    pub(crate) is_shared: bool,
    /// Tokens to run before the answer.
    pub(crate) prompt: u64,
    /// How many of these are run at once.
    pub(crate) chunk: u64,
    /// Tokens of the answer to count with.
    pub(crate) answer: u64,
}

/// The numbers of a decoder that decide what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) layer_count: u64,
    pub(crate) head_count: u64,
    pub(crate) kv_head_count: u64,
    pub(crate) head_dim: u64,
    pub(crate) hidden_size: u64,
    pub(crate) intermediate_size: u64,
    pub(crate) vocab_size: u64,
    /// Bytes of one number of the activations and of the KV state.
    pub(crate) element_bytes: u64,
}

/// Positions by which KV buffers grow.
pub(crate) const KV_STEP: u64 = 256;

impl Shape {
    /// Bytes of KV state that one token takes, over all layers.
    pub(crate) fn kv_bytes_per_token(&self) -> u64 {
        [
            self.layer_count,
            self.kv_head_count,
            self.head_dim,
            self.element_bytes,
        ]
        .into_iter()
        .fold(2, u64::saturating_mul)
    }

    /// Bytes of KV state of `token_count` tokens, with the room to grow that buffers have.
    pub(crate) fn kv_bytes(&self, token_count: u64) -> u64 {
        let positions = token_count.div_ceil(KV_STEP).saturating_mul(KV_STEP);
        positions.saturating_mul(self.kv_bytes_per_token())
    }

    /// Bytes of KV state that a request adds by the time that `token_count` tokens are in it.
    pub(crate) fn added_bytes(&self, request: &Request, token_count: u64) -> u64 {
        let there = if request.is_shared { 0 } else { request.kept };
        self.kv_bytes(token_count)
            .saturating_sub(self.kv_bytes(there))
    }

    /// What a request takes: its KV state to the end, and in a step the intermediate results of
    /// a chunk with one layer's state twice, since buffers grow by copying.
    pub(crate) fn need(&self, request: &Request) -> Need {
        let before = request.kept.saturating_add(request.prompt);
        let end = before.saturating_add(request.answer);
        let chunk = request.chunk.min(request.prompt);
        let growing = self.kv_bytes(end) / self.layer_count.max(1);
        Need {
            lasting_bytes: self.added_bytes(request, end),
            step_bytes: self.transient_bytes(chunk, before).saturating_add(growing),
        }
    }

    /// Bytes of intermediate results while `chunk` tokens are run at once behind others, up to
    /// `token_count` in all. Only one layer's are alive at a time: the hidden states with their
    /// residual, and either the attention's scores, which the CPU holds whole and in f32, before
    /// and after the softmax, or the MLP's three wide products. The last token's logits come
    /// with their log-softmax.
    pub(crate) fn transient_bytes(&self, chunk: u64, token_count: u64) -> u64 {
        let product = |factors: &[u64]| factors.iter().copied().fold(1, u64::saturating_mul);
        let hidden = product(&[4, chunk, self.hidden_size, self.element_bytes]);
        let scores = product(&[2, 4, self.head_count, chunk, token_count]);
        let mlp = product(&[3, chunk, self.intermediate_size, self.element_bytes]);
        let logits = product(&[3, self.vocab_size, 4]);
        hidden
            .saturating_add(scores.max(mlp))
            .saturating_add(logits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMOL: Shape = Shape {
        layer_count: 30,
        head_count: 9,
        kv_head_count: 3,
        head_dim: 64,
        hidden_size: 576,
        intermediate_size: 1536,
        vocab_size: 49152,
        element_bytes: 4,
    };

    #[test]
    fn kv_state_grows_in_steps() {
        assert_eq!(SMOL.kv_bytes_per_token(), 2 * 30 * 3 * 64 * 4);
        for (tokens, positions) in [(0, 0), (1, 256), (256, 256), (257, 512)] {
            assert_eq!(SMOL.kv_bytes(tokens), positions * SMOL.kv_bytes_per_token());
        }
    }

    #[test]
    fn a_request_adds_what_is_not_there() {
        let request = Request {
            kept: 300,
            is_shared: false,
            prompt: 100,
            chunk: 64,
            answer: 200,
        };
        let token = SMOL.kv_bytes_per_token();
        assert_eq!(SMOL.need(&request).lasting_bytes, (768 - 512) * token);
        assert_eq!(
            SMOL.need(&request).step_bytes,
            SMOL.transient_bytes(64, 400) + 768 * token / 30
        );
        assert_eq!(SMOL.added_bytes(&request, 400), 0);
        let shared = Request {
            is_shared: true,
            ..request
        };
        assert_eq!(SMOL.need(&shared).lasting_bytes, 768 * token);
        assert_eq!(SMOL.added_bytes(&shared, 400), 512 * token);
    }

    #[test]
    fn impossible_numbers_saturate() {
        assert_eq!(SMOL.kv_bytes(u64::MAX), u64::MAX);
        assert_eq!(SMOL.transient_bytes(u64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn long_chunks_are_dominated_by_scores() {
        let short = SMOL.transient_bytes(16, 16);
        assert_eq!(short, 4 * 16 * 576 * 4 + 3 * 16 * 1536 * 4 + 3 * 49152 * 4);
        let long = SMOL.transient_bytes(2048, 2048);
        assert_eq!(
            long,
            4 * 2048 * 576 * 4 + 8 * 9 * 2048 * 2048 + 3 * 49152 * 4
        );
    }
}
