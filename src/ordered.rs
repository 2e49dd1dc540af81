//! Work in parallel, results in order, and only so many of them at once.

use std::any::Any;
use std::collections::BTreeMap;
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
                let (number, done) = next(&results);
                waiting.insert(number, done);
            };
            take(item, done.unwrap_or_else(|panic| resume_unwind(panic)))?;
        }
        Ok(())
    })
}

type Done<T> = (usize, Result<T, Box<dyn Any + Send>>);

/// The next result. On a thread of the pool itself, work is done while waiting.
fn next<T>(results: &Receiver<Done<T>>) -> Done<T> {
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
                // `in_order` keeps a sender, so there is always a result to come.
                Err(_) => unreachable!("the sender lives as long as the receiver"),
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
    fn a_panic_in_the_work_arrives() {
        let work = |item: usize| assert_ne!(item, 3, "three");
        let caught =
            catch_unwind(AssertUnwindSafe(|| in_order(9, 4, work, |_, ()| Ok::<_, ()>(()))));
        assert!(caught.is_err());
    }
}
