// main.rs - the scheduler's rows in tokio: a task is a process, an unbounded channel its mailbox.
// usage: tokio ROW WORKERS N       prints RESULT ops=... seconds=...
mod grains;
mod remote;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{unbounded_channel as mailbox, UnboundedSender as To};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

async fn ping_pong(n: usize) -> usize {
    let (ping, mut pinged) = mailbox();
    let (pong, mut ponged) = mailbox();
    tokio::spawn(async move {
        while let Some(v) = pinged.recv().await {
            let _ = pong.send(v);
        }
    });
    for i in 0..n {
        let _ = ping.send(i);
        ponged.recv().await;
    }
    n
}

async fn ring(n: usize) -> usize {
    let (done, mut is_done) = mailbox();
    let (first, mut from) = mailbox();
    for i in 0..503 {
        let (next, from_this) = if i == 502 { (first.clone(), mailbox().1) } else { mailbox() };
        let done = done.clone();
        tokio::spawn(async move {
            while let Some(hops) = from.recv().await {
                if hops == 0 {
                    let _ = done.send(());
                    return;
                }
                let _ = next.send(hops - 1);
            }
        });
        from = from_this;
    }
    let _ = first.send(n);
    is_done.recv().await;
    n
}

async fn counting(n: usize) -> usize {
    let (number, mut numbers) = mailbox();
    let counter = tokio::spawn(async move {
        let mut sum = 0;
        while let Some(v) = numbers.recv().await {
            sum += v;
        }
        sum
    });
    for _ in 0..n {
        let _ = number.send(1);
    }
    drop(number);
    counter.await.unwrap()
}

async fn fork_join_throughput(n: usize) -> usize {
    let mut workers = vec![];
    let mut ends = vec![];
    for _ in 0..60 {
        let (to, mut work) = mailbox();
        workers.push(to);
        ends.push(tokio::spawn(async move {
            for _ in 0..n / 60 {
                work.recv().await;
            }
        }));
    }
    for k in 0..n / 60 {
        for worker in &workers {
            let _ = worker.send(k);
        }
    }
    for end in ends {
        end.await.unwrap();
    }
    n / 60 * 60
}

async fn fork_join_create(n: usize) -> usize {
    let count = Arc::new(AtomicUsize::new(0));
    let (done, mut is_done) = mailbox();
    for i in 0..n {
        let (to, mut work) = mailbox();
        let (count, done) = (count.clone(), done.clone());
        tokio::spawn(async move {
            work.recv().await;
            if count.fetch_add(1, Relaxed) + 1 == n {
                let _ = done.send(());
            }
        });
        let _ = to.send(1);
        if i % 64 == 63 {
            yield_now().await; // else a million of them wait in the queue: slower by far
        }
    }
    is_done.recv().await;
    n
}

enum Big {
    Ping(To<Big>),
    Pong,
}

async fn big(n: usize) -> usize {
    let (all, mailboxes): (Vec<_>, Vec<_>) = (0..120).map(|_| mailbox()).unzip();
    let all = Arc::new(all);
    let (done, mut is_done) = mailbox();
    for (i, mut me) in mailboxes.into_iter().enumerate() {
        let (all, done) = (all.clone(), done.clone());
        tokio::spawn(async move {
            let mut draw = i * 7919 + 1;
            for _ in 0..n / 120 {
                draw = draw * 16807 % 2147483647;
                let _ = all[(draw >> 8) % 120].send(Big::Ping(all[i].clone()));
                while let Some(Big::Ping(from)) = me.recv().await {
                    let _ = from.send(Big::Pong);
                }
            }
            let _ = done.send(());
            while let Some(Big::Ping(from)) = me.recv().await {
                let _ = from.send(Big::Pong);
            }
        });
    }
    for _ in 0..120 {
        is_done.recv().await;
    }
    for to in all.iter() {
        let _ = to.send(Big::Pong);
    }
    n / 120 * 120
}

async fn chameneos(n: usize) -> usize {
    let (mall, mut visitors) = mailbox::<(usize, To<usize>)>();
    for i in 0..100 {
        let mall = mall.clone();
        let (me, mut meeting) = mailbox();
        tokio::spawn(async move {
            let mut colour = i % 3;
            while mall.send((colour, me.clone())).is_ok() {
                match meeting.recv().await {
                    Some(other) if other < 3 && other != colour => colour = 3 - colour - other,
                    Some(other) if other == colour => {}
                    _ => return,
                }
            }
        });
    }
    for _ in 0..n {
        let (a, one) = visitors.recv().await.unwrap();
        let (b, other) = visitors.recv().await.unwrap();
        let _ = one.send(b);
        let _ = other.send(a);
    }
    for _ in 0..100 {
        let _ = visitors.recv().await.unwrap().1.send(3);
    }
    n
}

type Later = Pin<Box<dyn Future<Output = ()> + Send>>;

fn sky(parent: To<usize>, number: usize, size: usize) -> Later {
    Box::pin(async move {
        let mut sum = number;
        if size > 1 {
            let (me, mut children) = mailbox();
            for i in 0..10 {
                tokio::spawn(sky(me.clone(), number + i * size / 10, size / 10));
            }
            sum = 0;
            for _ in 0..10 {
                sum += children.recv().await.unwrap();
            }
        }
        let _ = parent.send(sum);
    })
}

async fn skynet(n: usize) -> usize {
    let (me, mut root) = mailbox();
    tokio::spawn(sky(me, 0, n));
    assert_eq!(root.recv().await, Some(n * (n - 1) / 2));
    n
}

async fn timers(n: usize) -> usize {
    let mut ends = vec![];
    for _ in 0..1000 {
        ends.push(tokio::spawn(async move {
            for _ in 0..n / 1000 {
                // the first poll sets the timer, the second ends the wait and drops it
                let _ = timeout(Duration::from_secs(1), yield_now()).await;
            }
        }));
    }
    for end in ends {
        end.await.unwrap();
    }
    n / 1000 * 1000
}

// 5,000 pairs play n round trips in all, beside hogs that never yield.
async fn fair(hogs: usize, n: usize) {
    let begin = Instant::now();
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..hogs {
        let stop = stop.clone();
        tokio::spawn(async move { while !stop.load(Relaxed) {} });
    }
    let mut pairs = vec![];
    for _ in 0..5000 {
        pairs.push(tokio::spawn(async move {
            let mut trips = vec![];
            let (ping, mut pinged) = mailbox();
            let (pong, mut ponged) = mailbox();
            tokio::spawn(async move {
                while let Some(v) = pinged.recv().await {
                    let _ = pong.send(v);
                }
            });
            for i in 0..n / 5000 {
                let sent = Instant::now();
                let _ = ping.send(i);
                ponged.recv().await;
                trips.push(sent.elapsed());
            }
            trips
        }));
    }
    let mut trips = vec![];
    for pair in pairs {
        trips.append(&mut pair.await.unwrap());
    }
    let seconds = begin.elapsed().as_secs_f64();
    stop.store(true, Relaxed);
    trips.sort();
    let p99 = trips[trips.len() * 99 / 100].as_secs_f64() * 1e6;
    println!("RESULT ops={} seconds={} p99_us={}", trips.len(), seconds, p99);
}

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

async fn idle_bytes(n: usize) {
    let mut all: Vec<Option<To<usize>>> = (0..n).map(|_| None).collect();
    let before = resident();
    for slot in all.iter_mut() {
        let (to, mut me) = mailbox();
        *slot = Some(to);
        tokio::spawn(async move { me.recv().await });
    }
    sleep(Duration::from_secs(1)).await;
    println!("RESULT bytes={}", (resident() - before) as f64 / n as f64);
}

async fn run(row: &str, n: usize) -> usize {
    match row {
        "ping-pong" => ping_pong(n).await,
        "ring" => ring(n).await,
        "counting" => counting(n).await,
        "fork-join-throughput" => fork_join_throughput(n).await,
        "fork-join-create" => fork_join_create(n).await,
        "big" => big(n).await,
        "chameneos" => chameneos(n).await,
        "skynet" => skynet(n).await,
        "timers" => timers(n).await,
        _ => panic!("no such row"),
    }
}

macro_rules! timing {
    ($run:expr) => {{
        $run; // warm
        let begin = Instant::now();
        let ops = $run;
        println!("RESULT ops={} seconds={}", ops, begin.elapsed().as_secs_f64());
    }};
}

async fn timed(row: String, workers: String, n: usize) {
    let world = Default::default();
    let callers = row.strip_prefix("remote-").map_or(0, |n| n.parse().unwrap());
    match row.as_str() {
        "serve" => remote::serve().await,
        "grain-bytes" => println!("RESULT bytes={}", grains::bytes(n).await),
        "one" | "ping" | "random" | "random-named" | "fan-out" | "activate" => {
            timing!(grains::run(&world, &row, n).await);
        }
        "remote-1" | "remote-64" | "remote-1024" => {
            let remote = remote::Remote::new(callers, &workers).await;
            timing!(remote.run(n).await);
        }
        "idle-bytes" => idle_bytes(n).await,
        "fair" => fair(0, n).await,
        "hog" => fair(1, n).await,
        _ => timing!(run(&row, n).await),
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (row, n) = (args[1].clone(), args[3].parse().unwrap());
    let workers = args[2].clone();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(workers.parse().unwrap()).enable_all().build().unwrap();
    // on a worker, as the tasks are: the thread of block_on is outside
    runtime.block_on(async { tokio::spawn(timed(row, workers, n)).await.unwrap() });
    std::process::exit(0); // what hogs a worker need not end
}
