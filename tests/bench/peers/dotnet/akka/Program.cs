// Program.cs - actors of Akka.NET at the rows of Bench.cs, those of clients excepted.
// usage: akka ROW WORKERS N       prints RESULT ops=... seconds=...
// Grains with names (random-named, activate, grain-bytes) are those of cluster sharding; the other
// rows hold their actors.
using Akka.Actor;
using Akka.Cluster;
using Akka.Cluster.Sharding;
using Akka.Configuration;
using Peers;

return await Bench.Program(new AkkaPeer(), args);

namespace Peers
{
    public sealed class AkkaPeer : IPeer
    {
        private IActorRef[] callers = [];

        public async Task Open(Row row)
        {
            if (row.Where == Where.Client)
                throw new ArgumentException("no clients");
            ActorSystem system = Started();
            IActorRef? region = null;
            IActorRef[] held = [];
            if (row.Where == Where.Remote)
                held = await Remote(system, row.Callers);
            else if (row.Shape is Shape.RandomNamed or Shape.New)
                region = await Region(system);
            else
                held = Echoes(system, Math.Max(row.Callers, row.Targets));
            callers = [.. Enumerable.Range(0, row.Callers).Select(_ => system.ActorOf(Props.Create(() => new CallerActor(held, region))))];
        }

        public Task Call(Row row, int caller, long from, long n) =>
            callers[caller].Ask<bool>(new Plan(row, caller, from, n), Timeout.InfiniteTimeSpan);

        public Task<string> Serve(string[] args)
        {
            ActorSystem system = Started();
            Echoes(system, int.Parse(args[0]));
            return Task.FromResult(Cluster.Get(system).SelfAddress.ToString());
        }

        private static ActorSystem Started() => ActorSystem.Create("peer", ConfigurationFactory.ParseString($$"""
            akka {
              loglevel = OFF
              stdout-loglevel = OFF
              actor {
                provider = cluster
                serializers.small = "{{typeof(SmallSerializer).AssemblyQualifiedName}}"
                serialization-bindings { "{{typeof(Small).AssemblyQualifiedName}}" = small }
              }
              remote.dot-netty.tcp { hostname = "127.0.0.1", port = 0 }
              cluster.sharding { passivate-idle-entity-after = off, state-store-mode = ddata }
            }
            """));

        private static IActorRef[] Echoes(ActorSystem system, long n) =>
            [.. Enumerable.Range(0, (int)n).Select(i => system.ActorOf(Props.Create<EchoActor>(), "echo-" + i))];

        /// <summary>The targets of another process.</summary>
        private static async Task<IActorRef[]> Remote(ActorSystem system, int n)
        {
            string address = await Bench.StartSecond(n);
            return await Task.WhenAll(Enumerable.Range(0, n).Select(i =>
                system.ActorSelection($"{address}/user/echo-{i}").ResolveOne(TimeSpan.FromSeconds(20))));
        }

        /// <summary>Of a cluster of one node; envelopes name the grain.</summary>
        private static async Task<IActorRef> Region(ActorSystem system)
        {
            Cluster cluster = Cluster.Get(system);
            await cluster.JoinAsync(cluster.SelfAddress);
            return await ClusterSharding.Get(system).StartAsync("echo", Props.Create<EchoActor>(),
                ClusterShardingSettings.Create(system), HashCodeMessageExtractor.Create(100, _ => null));
        }
    }
}
