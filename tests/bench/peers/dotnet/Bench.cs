// Bench.cs - what the programs for .NET share: the rows, their calls' keys, time, memory, and the
// second process. See ../README.md.
using System.Diagnostics;

namespace Peers;

public enum Shape { Own, Random, RandomNamed, FanOut, New }

public enum Where { Here, Remote, Client }

public sealed record Row(string Name, Shape Shape, int Callers, long Targets = 0, Where Where = Where.Here)
{
    public static readonly Row[] All =
    [
        new("one", Shape.Own, 1),
        new("ping", Shape.Own, 100),
        new("random", Shape.Random, 64, 100000),
        new("random-named", Shape.RandomNamed, 64, 100000),
        new("fan-out", Shape.FanOut, 1, 1000),
        new("activate", Shape.New, 1),
        new("grain-bytes", Shape.New, 1),
        new("remote-1", Shape.Own, 1, 0, Where.Remote),
        new("remote-64", Shape.Own, 64, 0, Where.Remote),
        new("remote-1024", Shape.Own, 1024, 0, Where.Remote),
        new("client-1", Shape.Own, 1, 0, Where.Client),
        new("client-64", Shape.Own, 64, 0, Where.Client),
        new("client-1024", Shape.Own, 1024, 0, Where.Client),
    ];

    public static Row Named(string name) => Array.Find(All, row => row.Name == name) ?? throw new ArgumentException(name);

    /// <summary>Of the target of a caller's i-th call.</summary>
    public long Key(int caller, long i) => Shape switch
    {
        Shape.New => i,
        Shape.FanOut => i % Targets,
        Shape.Own => caller,
        _ => (long)(Mixed((ulong)caller << 32 | (ulong)i) % (ulong)Targets),
    };

    private static ulong Mixed(ulong x)
    {
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
        return x ^ (x >> 31);
    }
}

/// <summary>A system that the bench runs.</summary>
public interface IPeer
{
    /// <summary>Starts this process's node and, if the row has one, the second process.</summary>
    Task Open(Row row);

    /// <summary>Makes n calls of a caller, the first with the number from, and checks the answers.</summary>
    Task Call(Row row, int caller, long from, long n);

    /// <summary>In the second process: starts its node. The result is its line for the first one.</summary>
    Task<string> Serve(string[] args);
}

public static class Bench
{
    /// <summary>Of warm-up: the just-in-time compiler's figures settle in about ten.</summary>
    private static readonly double warmSeconds =
        double.Parse(Environment.GetEnvironmentVariable("PEERS_WARM_SECONDS") ?? "10");

    private static Process? second; // its standard input ends with us

    public static async Task<int> Program(IPeer peer, string[] args)
    {
        if (args is ["serve", .. var more])
        {
            Console.WriteLine(await peer.Serve(more));
            await Console.In.ReadToEndAsync();
            Environment.Exit(0);
        }
        bool stays = args is [_, _, _, "stay"];
        if (args.Length != 3 && !stays)
        {
            Console.Error.WriteLine("usage: PROGRAM ROW WORKERS N [stay]");
            return 2;
        }
        Row row = Row.Named(args[0]);
        await peer.Open(row);
        await (row.Name == "grain-bytes" ? GrainBytes(peer, row, long.Parse(args[2])) : Timed(peer, row, long.Parse(args[2]), stays));
        second?.Kill();
        Environment.Exit(0); // grains that are left need not end
        return 0; // not reached
    }

    /// <summary>This program once more. The result is its first line.</summary>
    public static async Task<string> StartSecond(params object[] args)
    {
        var start = new ProcessStartInfo(Environment.ProcessPath!) { RedirectStandardInput = true, RedirectStandardOutput = true };
        start.ArgumentList.Add(typeof(Bench).Assembly.Location);
        start.ArgumentList.Add("serve");
        foreach (object arg in args)
            start.ArgumentList.Add(arg.ToString()!);
        second = Process.Start(start)!;
        return await second.StandardOutput.ReadLineAsync() ?? throw new InvalidOperationException("the second process does not start");
    }

    /// <summary>Tries until there is no exception: the two nodes have to find each other.</summary>
    public static async Task Until(Func<Task> answered)
    {
        for (int tries = 100; ; tries--)
        {
            try
            {
                await answered();
                return;
            }
            catch (Exception) when (tries > 0)
            {
                await Task.Delay(100);
            }
        }
    }

    public static void Check(ulong answer, long number)
    {
        if (answer != (ulong)number + 1)
            throw new InvalidOperationException("a wrong answer");
    }

    /// <summary>All callers at once, n calls in all; from: how many each has made before.</summary>
    private static async Task<long> Run(IPeer peer, Row row, long n, long from)
    {
        long each = Math.Max(1, n / row.Callers);
        if (row.Shape == Shape.FanOut)
            each = (each + row.Targets - 1) / row.Targets * row.Targets;
        await Task.WhenAll(Enumerable.Range(0, row.Callers).Select(caller => peer.Call(row, caller, from, each)));
        return each;
    }

    /// <summary>Warms up; stays: then runs once for each line of the standard input, which is its n.</summary>
    private static async Task Timed(IPeer peer, Row row, long n, bool stays)
    {
        long from = 0;
        var clock = Stopwatch.StartNew();
        do
            from += await Run(peer, row, n, from);
        while (clock.Elapsed.TotalSeconds < warmSeconds);
        while (!stays || long.TryParse(await Console.In.ReadLineAsync(), out n))
        {
            GC.Collect();
            clock.Restart();
            long each = await Run(peer, row, n, from);
            Console.WriteLine($"RESULT ops={row.Callers * each} seconds={clock.Elapsed.TotalSeconds:F9}");
            from += each;
            if (!stays)
                break;
        }
    }

    private static async Task GrainBytes(IPeer peer, Row row, long n)
    {
        await Run(peer, row, 1000, 0);
        long before = Resident();
        await Run(peer, row, n, 1000);
        Console.WriteLine($"RESULT bytes={(Resident() - before) / (double)n:F1}");
    }

    /// <summary>What is left after three full, compacting collections.</summary>
    private static long Resident()
    {
        for (int i = 0; i < 3; i++)
        {
            GC.Collect(2, GCCollectionMode.Aggressive, true, true);
            GC.WaitForPendingFinalizers();
        }
        return long.Parse(File.ReadAllText("/proc/self/statm").Split(' ')[1]) * Environment.SystemPageSize;
    }
}
