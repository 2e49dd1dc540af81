//! Work in parallel, results in order, and only so many of them at once.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

/// Does `work` on `0..count` on the threads of the pool, and hands the results to `take` in order,
/// on this thread. At most `ahead` items (one at least) are being worked on or wait for their
/// turn, so memory is bounded by so many of them.
///
/// # Errors
///
/// The first error of `take`; nothing new is begun after it.
pub fn in_order<T: Send, E>(
    count: usize,
    ahead: usize,
    work: impl Fn(usize) -> T + Sync,
    mut take: impl FnMut(usize, T) -> Result<(), E>,
) -> Result<(), E> {
    let ahead = ahead.max(1);
    if count <= 1 || ahead == 1 {
        // Handing one item at a time to another thread would gain nothing.
        return (0..count).try_for_each(|item| take(item, work(item)));
    }
    let work = &work;
    rayon::in_place_scope(|scope| {
        let (sender, results) = channel();
        let mut waiting = BTreeMap::new();
        let mut begun = 0;
        for item in 0..count {
            while begun < count.min(item + ahead) {
                let (sender, number) = (sender.clone(), begun);
                scope.spawn(move |_| {
                    let done = catch_unwind(AssertUnwindSafe(|| work(number)));
                    // Nobody listens any more once `take` has failed.
                    let _ = sender.send((number, done));
                });
                begun += 1;
            }
            let done = loop {
                if let Some(done) = waiting.remove(&item) {
                    break done;
                }
                let (number, done): Done<T> = next(&results);
                waiting.insert(number, done);
            };
            take(item, done.unwrap_or_else(|panic| resume_unwind(panic)))?;
        }
        Ok(())
    })
}

/// Work that goes on beside the caller, and whose results come in the order in which it was begun.
/// Dropped, it waits for what is still being worked on.
#[derive(Debug)]
pub struct Beside<T>(VecDeque<Receiver<Outcome<T>>>);

impl<T> Default for Beside<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: Send + 'static> Beside<T> {
    /// Begins to do `work` on a thread of the pool.
    pub fn begin(&mut self, work: impl FnOnce() -> T + Send + 'static) {
        let (sender, result) = channel();
        rayon::spawn(move || {
            // Nobody listens any more once the caller has given up.
            let _ = sender.send(catch_unwind(AssertUnwindSafe(work)));
        });
        self.0.push_back(result);
    }

    /// How many results have not been taken.
    pub fn pending(&self) -> usize {
        self.0.len()
    }

    /// Waits for the result of what was begun first.
    pub fn first(&mut self) -> Option<T> {
        let result = self.0.pop_front()?;
        Some(next(&result).unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

impl<T> Drop for Beside<T> {
    fn drop(&mut self) {
        for result in self.0.drain(..) {
            drop(next(&result));
        }
    }
}

type Outcome<T> = Result<T, Box<dyn Any + Send>>;

type Done<T> = (usize, Outcome<T>);

/// The next result, of which one is sure to come. On a thread of the pool itself, work is done
/// while waiting.
fn next<T>(results: &Receiver<T>) -> T {
    loop {
        match results.try_recv() {
            Ok(done) => return done,
            Err(TryRecvError::Empty) if rayon::current_thread_index().is_some() => {
                if rayon::yield_now() == Some(rayon::Yield::Idle) {
                    std::thread::yield_now();
                }
            }
            _ => match results.recv() {
                Ok(done) => return done,
                Err(_) => unreachable!("whoever sends lives until the result is sent"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    fn pool(threads: usize) -> rayon::ThreadPool {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap()
    }

    #[test]
    fn results_come_in_order_and_few_at_once() {
        for (count, ahead) in [(0, 3), (1, 3), (40, 1), (40, 3), (40, 100)] {
            let (held, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let work = |item: usize| {
                most.fetch_max(held.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                // Later items are done sooner.
                std::thread::sleep(Duration::from_micros(((count - item) % 7 * 300) as u64));
                item * item
            };
            let mut taken = Vec::new();
            in_order(count, ahead, work, |item, square| {
                held.fetch_sub(1, Ordering::SeqCst);
                taken.push((item, square));
                Ok::<_, ()>(())
            })
            .unwrap();
            assert_eq!(taken, (0..count).map(|item| (item, item * item)).collect::<Vec<_>>());
            assert!(most.load(Ordering::SeqCst) <= ahead.min(count.max(1)));
        }
    }

    #[test]
    fn a_failure_begins_nothing_new() {
        let begun = AtomicUsize::new(0);
        let work = |_| begun.fetch_add(1, Ordering::SeqCst);
        let failed =
            in_order(1000, 4, work, |item, _| if item == 2 { Err("full") } else { Ok(()) });
        assert_eq!(failed, Err("full"));
        assert!(begun.load(Ordering::SeqCst) <= 6);
    }

    #[test]
    fn a_pool_of_one_thread_can_wait_for_itself() {
        let taken = pool(1).install(|| {
            let mut taken = Vec::new();
            in_order(
                9,
                4,
                |item| item,
                |_, item| {
                    taken.push(item);
                    Ok::<_, ()>(())
                },
            )
            .unwrap();
            taken
        });
        assert_eq!(taken, (0..9).collect::<Vec<_>>());
    }

    #[test]
    fn what_goes_on_beside_comes_in_order_and_is_waited_for() {
        static DONE: AtomicUsize = AtomicUsize::new(0);
        let work = |item: usize| {
            std::thread::sleep(Duration::from_millis((5 - item) as u64));
            DONE.fetch_add(1, Ordering::SeqCst);
            item
        };
        for threads in [1, 3] {
            let taken = pool(threads).install(|| {
                let mut beside = Beside::default();
                (0..5).for_each(|item| beside.begin(move || work(item)));
                let taken: Vec<_> = std::iter::from_fn(|| beside.first()).collect();
                (0..5).for_each(|item| beside.begin(move || work(item)));
                assert_eq!((beside.pending(), beside.first()), (5, Some(0)));
                taken
            });
            assert_eq!(taken, [0, 1, 2, 3, 4]);
            assert_eq!(DONE.swap(0, Ordering::SeqCst), 10);
        }
    }

    #[test]
    fn a_panic_beside_arrives_when_its_result_is_taken() {
        let mut beside = Beside::default();
        beside.begin(|| 1);
        beside.begin(|| panic!("two"));
        assert_eq!(beside.first(), Some(1));
        assert!(catch_unwind(AssertUnwindSafe(|| beside.first())).is_err());
    }

    #[test]
    fn a_panic_in_the_work_arrives() {
        let work = |item: usize| assert_ne!(item, 3, "three");
        let caught =
            catch_unwind(AssertUnwindSafe(|| in_order(9, 4, work, |_, ()| Ok::<_, ()>(()))));
        assert!(caught.is_err());
    }
}
