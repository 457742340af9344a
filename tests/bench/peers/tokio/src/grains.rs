// grains.rs - grains' rows in tokio: a grain is a task, found through a map when it has a name.
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;
use tokio::sync::mpsc::{unbounded_channel as mailbox, UnboundedReceiver, UnboundedSender as To};

pub struct Small {
    pub number: u64,
    pub name: String,
}

struct Request {
    small: Small,
    from: To<Small>,
}

type Grain = To<Request>;

fn new_grain() -> Grain {
    let (to, mut me) = mailbox::<Request>();
    tokio::spawn(async move {
        while let Some(r) = me.recv().await {
            let _ = r.from.send(Small { number: r.small.number + 1, ..r.small });
        }
    });
    to
}

struct Caller {
    me: To<Small>,
    answers: UnboundedReceiver<Small>,
}

impl Caller {
    fn new() -> Caller {
        let (me, answers) = mailbox();
        Caller { me, answers }
    }

    fn send(&self, to: &Grain, number: u64) {
        let small = Small { number, name: "small".into() };
        let _ = to.send(Request { small, from: self.me.clone() });
    }

    async fn call(&mut self, to: &Grain, number: u64) {
        self.send(to, number);
        assert_eq!(self.answers.recv().await.unwrap().number, number + 1);
    }
}

// The name table: whoever asks first makes the grain.
#[derive(Default)]
pub struct World {
    names: RwLock<HashMap<u64, Grain>>,
    known: Mutex<Arc<Vec<Grain>>>,
}

type Worlds = Arc<World>;

impl World {
    fn named(&self, key: u64) -> Grain {
        if let Some(grain) = self.names.read().unwrap().get(&key) {
            return grain.clone();
        }
        self.names.write().unwrap().entry(key).or_insert_with(new_grain).clone()
    }

    fn known(&self, n: u64) -> Arc<Vec<Grain>> {
        let mut known = self.known.lock().unwrap();
        if (known.len() as u64) < n {
            *known = Arc::new((0..n).map(|key| self.named(key)).collect());
        }
        known.clone()
    }
}

// So many callers at once, n calls in all; work makes a caller's calls.
pub async fn each<F, W>(callers: usize, n: usize, work: W) -> usize
where
    F: Future<Output = ()> + Send + 'static,
    W: Fn(u64, u64) -> F,
{
    let each = (n / callers) as u64;
    let ends: Vec<_> = (0..callers).map(|c| tokio::spawn(work(c as u64, each))).collect();
    for end in ends {
        end.await.unwrap();
    }
    n / callers * callers
}

fn mixed(caller: u64, i: u64) -> u64 {
    let mut x = caller << 32 | i;
    x = (x ^ x >> 30).wrapping_mul(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d049bb133111eb);
    (x ^ x >> 31) % 100000
}

// Each caller with a grain of its own.
async fn own(world: &Worlds, callers: usize, n: usize) -> usize {
    let known = world.known(callers as u64);
    each(callers, n, |c, n| {
        let (mut me, to) = (Caller::new(), known[c as usize].clone());
        async move {
            for i in 0..n {
                me.call(&to, i).await;
            }
        }
    })
    .await
}

async fn random(world: &Worlds, n: usize) -> usize {
    let known = world.known(100000);
    each(64, n, |c, n| {
        let (mut me, known) = (Caller::new(), known.clone());
        async move {
            for i in 0..n {
                me.call(&known[mixed(c, i) as usize], i).await;
            }
        }
    })
    .await
}

async fn random_named(world: &Worlds, n: usize) -> usize {
    world.known(100000);
    each(64, n, |c, n| {
        let (mut me, world) = (Caller::new(), world.clone());
        async move {
            for i in 0..n {
                me.call(&world.named(mixed(c, i)), i).await;
            }
        }
    })
    .await
}

async fn fan_out(world: &Worlds, n: usize) -> usize {
    let known = world.known(1000);
    let mut me = Caller::new();
    for _ in 0..(n + 999) / 1000 {
        for (i, to) in known.iter().enumerate() {
            me.send(to, i as u64);
        }
        for _ in 0..1000 {
            me.answers.recv().await;
        }
    }
    (n + 999) / 1000 * 1000
}

async fn activate(world: &Worlds, n: usize) -> usize {
    let mut me = Caller::new();
    let first = world.names.read().unwrap().len();
    for key in first..first + n {
        me.call(&world.named(key as u64), key as u64).await;
    }
    n
}

pub async fn bytes(n: usize) -> f64 {
    let world = Worlds::default();
    activate(&world, 1000).await;
    let before = crate::resident();
    activate(&world, n).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    (crate::resident() - before) as f64 / n as f64
}

pub async fn run(world: &Worlds, row: &str, n: usize) -> usize {
    match row {
        "one" => own(world, 1, n).await,
        "ping" => own(world, 100, n).await,
        "random" => random(world, n).await,
        "random-named" => random_named(world, n).await,
        "fan-out" => fan_out(world, n).await,
        "activate" => activate(world, n).await,
        _ => panic!("no such row"),
    }
}
