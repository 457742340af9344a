// Grains.cs - what is called and what calls in Orleans, as in ../../../bench.proto.
using Orleans.Concurrency;
using Orleans.Placement;

namespace Peers;

[GenerateSerializer]
public sealed class Small
{
    [Id(0)] public ulong Number { get; set; }
    [Id(1)] public string Name { get; set; } = "";
}

public interface IEcho : IGrainWithIntegerKey
{
    [ReadOnly] ValueTask<Small> Echo(Small request);
}

[PreferLocalPlacement]
public sealed class EchoGrain : Grain, IEcho
{
    public ValueTask<Small> Echo(Small request) => new(new Small { Number = request.Number + 1, Name = request.Name });
}

public interface ICaller : IGrainWithIntegerKey
{
    [ResponseTimeout("00:10:00")] Task Call(string row, int caller, long from, long n);
}

[PreferLocalPlacement]
public sealed class CallerGrain : Grain, ICaller
{
    public Task Call(string row, int caller, long from, long n) => Calls.Make(GrainFactory, Row.Named(row), caller, from, n);
}

/// <summary>The calls of a caller, be it a grain or a task of a client.</summary>
public static class Calls
{
    private static IEcho[] held = []; // row random has its targets, as the other systems have

    public static void Hold(IGrainFactory grains, long n) =>
        held = [.. Enumerable.Range(0, (int)n).Select(key => grains.GetGrain<IEcho>(key))];

    public static Task Make(IGrainFactory grains, Row row, int caller, long from, long n) =>
        row.Shape == Shape.FanOut ? FanOut(grains, row.Targets, n) : OneByOne(grains, row, caller, from, n);

    public static async Task OneByOne(IGrainFactory grains, Row row, int caller, long from, long n)
    {
        for (long i = from; i < from + n; i++)
        {
            long key = row.Key(caller, i);
            IEcho target = row.Shape == Shape.Random ? held[key] : grains.GetGrain<IEcho>(key);
            Small answer = await target.Echo(new Small { Number = (ulong)i, Name = "small" });
            Bench.Check(answer.Number, i);
        }
    }

    private static async Task FanOut(IGrainFactory grains, long width, long n)
    {
        var answers = new Task[width];
        for (long done = 0; done < n; done += width)
        {
            for (long i = 0; i < width; i++)
                answers[i] = grains.GetGrain<IEcho>(i).Echo(new Small { Number = (ulong)i, Name = "small" }).AsTask();
            await Task.WhenAll(answers);
        }
    }
}
