// remote.rs - calls over TCP loopback in tokio, to a second process: by frames of our own (length,
// id, number, name) over one connection that all callers share.
use crate::grains::{each, Small};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{unbounded_channel as mailbox, UnboundedReceiver, UnboundedSender as To};

struct Frame {
    id: u64,
    small: Small,
}

impl Frame {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(16 + self.small.name.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&self.small.number.to_le_bytes());
        out.extend_from_slice(self.small.name.as_bytes());
    }

    // The first of the text, and where the next begins; None: there is not all of it.
    fn read(text: &[u8]) -> Option<(Frame, usize)> {
        let end = 4 + u32::from_le_bytes(text.get(..4)?.try_into().unwrap()) as usize;
        let body = text.get(4..end)?;
        let word = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().unwrap());
        let name = String::from_utf8(body[16..].to_vec()).unwrap();
        Some((Frame { id: word(0), small: Small { number: word(8), name } }, end))
    }
}

// Hands each answer to its caller.
async fn read_all(mut from: OwnedReadHalf, ins: Vec<To<Small>>) {
    let mut text = Vec::with_capacity(65536);
    while from.read_buf(&mut text).await.unwrap_or(0) > 0 {
        let mut at = 0;
        while let Some((frame, size)) = Frame::read(&text[at..]) {
            at += size;
            let _ = ins[frame.id as usize].send(frame.small);
        }
        text.drain(..at);
    }
}

async fn write_all(mut to: OwnedWriteHalf, mut frames: UnboundedReceiver<Frame>) {
    let mut text = Vec::with_capacity(65536);
    while let Some(frame) = frames.recv().await {
        frame.write(&mut text);
        while let Ok(frame) = frames.try_recv() {
            frame.write(&mut text);
        }
        if to.write_all(&text).await.is_err() {
            return;
        }
        text.clear();
    }
}

// Answers where it reads, all that has come with one write.
async fn serve_one(stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let (mut from, mut to) = stream.into_split();
    let (mut text, mut out) = (Vec::with_capacity(65536), Vec::with_capacity(65536));
    while from.read_buf(&mut text).await.unwrap_or(0) > 0 {
        let mut at = 0;
        while let Some((mut frame, size)) = Frame::read(&text[at..]) {
            at += size;
            frame.small.number += 1;
            frame.write(&mut out);
        }
        text.drain(..at);
        if to.write_all(&out).await.is_err() {
            return;
        }
        out.clear();
    }
}

// The second process: answers until its standard input ends.
pub async fn serve() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut vec![]);
        std::process::exit(0);
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    loop {
        tokio::spawn(serve_one(listener.accept().await.unwrap().0));
    }
}

pub struct Remote {
    _server: Child, // its standard input ends with us
    out: To<Frame>,
    callers: Arc<Vec<tokio::sync::Mutex<UnboundedReceiver<Small>>>>,
}

impl Remote {
    pub async fn new(callers: usize, workers: &str) -> Remote {
        let mut server = Command::new(std::env::current_exe().unwrap())
            .args(["serve", workers, "0"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut address).unwrap();
        let stream = TcpStream::connect(address.trim()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (from, to) = stream.into_split();
        let (out, frames) = mailbox();
        let (ins, answers): (Vec<_>, Vec<_>) = (0..callers).map(|_| mailbox()).unzip();
        tokio::spawn(write_all(to, frames));
        tokio::spawn(read_all(from, ins));
        let callers = Arc::new(answers.into_iter().map(tokio::sync::Mutex::new).collect());
        Remote { _server: server, out, callers }
    }

    pub async fn run(&self, n: usize) -> usize {
        each(self.callers.len(), n, |c, n| {
            let (out, callers) = (self.out.clone(), self.callers.clone());
            async move {
                let mut answers = callers[c as usize].lock().await;
                for number in 0..n {
                    let small = Small { number, name: "small".into() };
                    let _ = out.send(Frame { id: c, small });
                    assert_eq!(answers.recv().await.unwrap().number, number + 1);
                }
            }
        })
        .await
    }
}
