// Program.cs - virtual actors of Proto.Actor at the rows of Bench.cs; callers are tasks.
// usage: proto ROW WORKERS N       prints RESULT ops=... seconds=...
using Peers;
using Proto;
using Proto.Cluster;
using Proto.Cluster.Partition;
using Proto.Cluster.Seed;
using Proto.Remote;
using Proto.Remote.GrpcNet;

return await Bench.Program(new ProtoPeer(), args);

namespace Peers
{
    public sealed class EchoActor : IActor
    {
        public Task ReceiveAsync(IContext context)
        {
            if (context.Message is Small request)
                context.Respond(new Small { Number = request.Number + 1, Name = request.Name });
            return Task.CompletedTask;
        }
    }

    public sealed class ProtoPeer : IPeer
    {
        private Cluster cluster = null!;

        public async Task Open(Row row)
        {
            if (row.Where == Where.Client)
                throw new ArgumentException("no clients");
            cluster = await Member(FixedServerSeedNode.StartSeedNode(), row.Where == Where.Here);
            if (row.Where == Where.Remote)
                await Bench.StartSecond(cluster.System.GetAddress().Port);
            await Bench.Until(() => Ask(-1, 0));
        }

        public Task Call(Row row, int caller, long from, long n) =>
            Task.Run(() => row.Shape == Shape.FanOut ? FanOut(row.Targets, n) : OneByOne(row, caller, from, n));

        public async Task<string> Serve(string[] args)
        {
            await Member(FixedServerSeedNode.JoinSeedNode("127.0.0.1", int.Parse(args[0])), true);
            return "ready";
        }

        private static async Task<Cluster> Member(IClusterProvider provider, bool hosts)
        {
            ClusterConfig config = ClusterConfig.Setup("peer", provider, new PartitionIdentityLookup());
            if (hosts)
                config = config.WithClusterKind("echo", Props.FromProducer(() => new EchoActor()));
            ActorSystem system = new ActorSystem(new ActorSystemConfig().WithSharedFutures())
                .WithRemote(RemoteConfig.BindToLocalhost().WithProtoMessages(SmallReflection.Descriptor))
                .WithCluster(config);
            await system.Cluster().StartMemberAsync();
            return system.Cluster();
        }

        private async Task Ask(long key, long number)
        {
            var request = new Small { Number = (ulong)number, Name = "small" };
            Small? answer = await cluster.RequestAsync<Small>(key.ToString(), "echo", request, CancellationTokens.FromSeconds(30));
            Bench.Check(answer!.Number, number);
        }

        private async Task OneByOne(Row row, int caller, long from, long n)
        {
            for (long i = from; i < from + n; i++)
                await Ask(row.Key(caller, i), i);
        }

        private async Task FanOut(long width, long n)
        {
            var answers = new Task[width];
            for (long done = 0; done < n; done += width)
            {
                for (long i = 0; i < width; i++)
                    answers[i] = Ask(i, i);
                await Task.WhenAll(answers);
            }
        }
    }
}
