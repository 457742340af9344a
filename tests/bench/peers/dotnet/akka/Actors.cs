// Actors.cs - what is called and what calls in Akka.NET, and how a message becomes bytes.
using System.Buffers.Binary;
using System.Text;
using Akka.Actor;
using Akka.Cluster.Sharding;
using Akka.Serialization;

namespace Peers;

public sealed record Small(ulong Number, string Name);

/// <summary>Written by hand, since the default for classes is JSON.</summary>
public sealed class SmallSerializer(ExtendedActorSystem system) : Serializer(system)
{
    public override int Identifier => 4711;

    public override bool IncludeManifest => false;

    public override byte[] ToBinary(object message)
    {
        var small = (Small)message;
        var bytes = new byte[sizeof(ulong) + Encoding.UTF8.GetByteCount(small.Name)];
        BinaryPrimitives.WriteUInt64LittleEndian(bytes, small.Number);
        Encoding.UTF8.GetBytes(small.Name, 0, small.Name.Length, bytes, sizeof(ulong));
        return bytes;
    }

    public override object FromBinary(byte[] bytes, Type type) =>
        new Small(BinaryPrimitives.ReadUInt64LittleEndian(bytes), Encoding.UTF8.GetString(bytes, sizeof(ulong), bytes.Length - sizeof(ulong)));
}

public sealed class EchoActor : UntypedActor
{
    protected override void OnReceive(object message)
    {
        if (message is Small request)
            Sender.Tell(new Small(request.Number + 1, request.Name), Self);
    }
}

/// <summary>What a caller does until it has n answers; then it says so to its sender.</summary>
public sealed record Plan(Row Row, int Caller, long From, long N);

/// <summary>Asks by Tell: an answer is a message as any other.</summary>
/// <param name="held">the targets by key</param>
/// <param name="region">where grains are asked by key; null: held ones are</param>
public sealed class CallerActor(IActorRef[] held, IActorRef? region) : UntypedActor
{
    private Plan plan = null!;
    private IActorRef starter = ActorRefs.Nobody;
    private long sent, answered;

    protected override void OnReceive(object message)
    {
        if (message is Plan begun)
        {
            (plan, starter, sent, answered) = (begun, Sender, 0, 0);
            Ask();
        }
        else if (message is Small answer)
        {
            if (plan.Row.Shape != Shape.FanOut)
                Bench.Check(answer.Number, plan.From + answered);
            answered++;
            if (answered == plan.N)
                starter.Tell(true);
            else if (answered == sent)
                Ask();
        }
    }

    /// <summary>One, or as many as fan out.</summary>
    private void Ask()
    {
        long until = sent + (plan.Row.Shape == Shape.FanOut ? plan.Row.Targets : 1);
        for (; sent < until; sent++)
        {
            long number = plan.From + sent, key = plan.Row.Key(plan.Caller, number);
            var request = new Small((ulong)number, "small");
            if (region is null)
                held[key].Tell(request, Self);
            else
                region.Tell(new ShardingEnvelope(key.ToString(), request), Self);
        }
    }
}
