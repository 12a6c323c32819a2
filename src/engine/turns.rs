//! Whose turn it is: the task that has had the least of the engine's time.

use std::time::Duration;

/// What takes turns, each with the time that it has had.
///
/// By time and not by steps, since steps differ: a chunk of a long prompt takes as long as
/// hundreds of tokens of an answer. With equal steps the turns simply go round.
///
/// Those who come or come back start level with the others, so they run next but have no claim
/// on the time before. That level is the virtual time of fair queueing (Demers et al. 1989).
pub(super) struct Turns<T> {
    entries: Vec<Entry<T>>,
    /// The time that one has had who was always ready.
    level: Duration,
}

struct Entry<T> {
    item: T,
    waiting: bool,
    had: Duration,
    turn_count: u64,
}

impl<T> Turns<T> {
    pub(super) fn new() -> Self {
        Self {
            entries: Vec::new(),
            level: Duration::ZERO,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether nobody is ready.
    pub(super) fn all_wait(&self) -> bool {
        self.entries.iter().all(|entry| entry.waiting)
    }

    pub(super) fn add(&mut self, item: T) {
        self.entries.push(Entry {
            item,
            waiting: false,
            had: self.level,
            turn_count: 0,
        });
    }

    /// All who wait are ready again.
    pub(super) fn wake(&mut self) {
        for entry in self.entries.iter_mut().filter(|entry| entry.waiting) {
            entry.waiting = false;
            entry.had = entry.had.max(self.level);
        }
    }

    /// Takes out the one whose turn it is, for [`Self::put_back`] or [`Self::leave`]. Among
    /// equals it is the one with the fewest turns, then the one whose last turn is longest ago.
    pub(super) fn take_next(&mut self) -> Option<Turn<T>> {
        let ready = || self.entries.iter().enumerate().filter(|(_, e)| !e.waiting);
        let sharers = ready().count();
        let (index, _) = ready().min_by_key(|(_, entry)| (entry.had, entry.turn_count))?;
        let entry = self.entries.remove(index);
        Some(Turn {
            item: entry.item,
            had: entry.had,
            turn_count: entry.turn_count + 1,
            sharers: u32::try_from(sharers).unwrap_or(u32::MAX),
        })
    }

    /// Takes one back after its turn, which took `time`.
    pub(super) fn put_back(&mut self, turn: Turn<T>, time: Duration, waiting: bool) {
        let (had, turn_count) = (turn.had + time, turn.turn_count);
        let item = self.leave(turn, time);
        self.entries.push(Entry {
            item,
            waiting,
            had,
            turn_count,
        });
        let mut ready = self.entries.iter().filter(|entry| !entry.waiting);
        if let (Some(alone), None) = (ready.next(), ready.next()) {
            self.level = alone.had;
        }
    }

    /// Takes the time of one who does not come back.
    pub(super) fn leave(&mut self, turn: Turn<T>, time: Duration) -> T {
        self.level += time / turn.sharers;
        turn.item
    }

    /// All of them, at the end.
    pub(super) fn into_items(self) -> impl Iterator<Item = T> {
        self.entries.into_iter().map(|entry| entry.item)
    }
}

/// One that has its turn.
pub(super) struct Turn<T> {
    pub(super) item: T,
    had: Duration,
    turn_count: u64,
    /// How many were ready, itself included.
    sharers: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives turns until `end`, in milliseconds; `cost` says how long each one's take.
    fn run(turns: &mut Turns<char>, end: u64, cost: impl Fn(char) -> u64) -> String {
        let (mut order, mut now) = (String::new(), 0);
        while now < end {
            let turn = turns.take_next().unwrap();
            let time = cost(turn.item);
            order.push(turn.item);
            now += time;
            turns.put_back(turn, Duration::from_millis(time), false);
        }
        order
    }

    fn of(items: &str) -> Turns<char> {
        let mut turns = Turns::new();
        items.chars().for_each(|item| turns.add(item));
        turns
    }

    #[test]
    fn equal_steps_go_round() {
        assert_eq!(run(&mut of("abc"), 7, |_| 1), "abcabca");
    }

    #[test]
    fn long_and_short_steps_share_the_time() {
        let order = run(&mut of("Ab"), 400, |item| if item == 'A' { 10 } else { 1 });
        assert!(order.starts_with("AbbbbbbbbbbA"), "{order}");
        let long = order.matches('A').count() * 10;
        let short = order.matches('b').count();
        assert!(long.abs_diff(short) <= 10, "{long} {short}");
    }

    #[test]
    fn a_newcomer_is_next_and_has_no_claim_on_the_past() {
        let mut turns = of("A");
        run(&mut turns, 1000, |_| 10);
        turns.add('b');
        assert_eq!(run(&mut turns, 40, |_| 10), "bAbA");
    }

    #[test]
    fn newcomers_one_after_another_do_not_starve_the_others() {
        let mut turns = of("A");
        let (mut long, mut short) = (0, 0);
        turns.add('b');
        while long < 1000 {
            let turn = turns.take_next().unwrap();
            if turn.item == 'A' {
                long += 10;
                turns.put_back(turn, Duration::from_millis(10), false);
            } else {
                short += 1;
                turns.leave(turn, Duration::from_millis(1));
                turns.add('b');
            }
        }
        // Together they get what one would get who is always ready.
        assert!((900..=1100).contains(&short), "{short}");
    }

    #[test]
    fn one_who_waited_saves_nothing_up() {
        let mut turns = of("ab");
        let waits = turns.take_next().unwrap();
        assert_eq!(waits.item, 'a');
        turns.put_back(waits, Duration::from_millis(1), true);
        assert_eq!(run(&mut turns, 100, |_| 1), "b".repeat(100));
        assert!(!turns.all_wait());
        turns.wake();
        assert_eq!(run(&mut turns, 6, |_| 1), "ababab");
    }

    #[test]
    fn nobody_has_a_turn_while_all_wait() {
        let mut turns = of("a");
        let turn = turns.take_next().unwrap();
        assert!(turns.is_empty() && turns.all_wait());
        turns.put_back(turn, Duration::ZERO, true);
        assert!(turns.all_wait() && turns.take_next().is_none());
        turns.wake();
        assert_eq!(turns.take_next().unwrap().item, 'a');
    }
}
