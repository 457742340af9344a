// Program.cs - grains of Orleans at the rows of Bench.cs: silos and clients on loopback.
// usage: orleans ROW WORKERS N       prints RESULT ops=... seconds=...
using System.Net;
using System.Net.Sockets;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Hosting;
using Orleans.Configuration;
using Peers;

return await Bench.Program(new OrleansPeer(), args);

namespace Peers
{
    public sealed class OrleansPeer : IPeer
    {
        private IGrainFactory grains = null!;

        public async Task Open(Row row)
        {
            (int port, int gateway) = (FreePort(), FreePort());
            if (row.Where == Where.Client)
            {
                await Bench.StartSecond(port, gateway, port);
                grains = await Started(new HostBuilder().UseOrleansClient(client => client.UseLocalhostClustering(gateway)));
            }
            else
            {
                grains = await Silo(port, gateway, port, row.Where == Where.Remote ? typeof(EchoGrain) : null);
                if (row.Where == Where.Remote)
                    await Bench.StartSecond(FreePort(), FreePort(), port);
            }
            Calls.Hold(grains, row.Targets);
            await Bench.Until(() => Calls.OneByOne(grains, Row.All[0], -1, 0, 1));
        }

        public Task Call(Row row, int caller, long from, long n) => row.Where == Where.Client
            ? Task.Run(() => Calls.Make(grains, row, caller, from, n))
            : grains.GetGrain<ICaller>(caller).Call(row.Name, caller, from, n);

        public async Task<string> Serve(string[] args)
        {
            await Silo(int.Parse(args[0]), int.Parse(args[1]), int.Parse(args[2]), typeof(CallerGrain));
            return "ready";
        }

        /// <param name="primary">the port of the silo with the membership table</param>
        /// <param name="without">a class of grains that only the other silo has</param>
        private static Task<IGrainFactory> Silo(int port, int gateway, int primary, Type? without) =>
            Started(new HostBuilder().UseOrleans(silo => silo
                .UseLocalhostClustering(port, gateway, new IPEndPoint(IPAddress.Loopback, primary))
                .Configure<GrainTypeOptions>(types => types.Classes.RemoveWhere(type => type == without))));

        private static async Task<IGrainFactory> Started(IHostBuilder builder)
        {
            IHost host = builder.Build();
            await host.StartAsync();
            return host.Services.GetRequiredService<IGrainFactory>();
        }

        private static int FreePort()
        {
            using var listener = new TcpListener(IPAddress.Loopback, 0);
            listener.Start();
            return ((IPEndPoint)listener.LocalEndpoint).Port;
        }
    }
}
