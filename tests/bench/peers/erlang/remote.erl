%% remote.erl - calls over TCP loopback in Erlang, to a second node by Erlang's distribution. This
%% module stands in for epmd: the second node says its port on its standard output.
-module(remote).
-export([row/1, serve/0]).
-export([start_link/0, register_node/2, register_node/3, port_please/2, port_please/3, names/1]).

%% ---- instead of epmd ----
start_link() -> ignore.
register_node(Name, Port) -> register_node(Name, Port, inet).
register_node(_, Port, _) -> persistent_term:put(port, Port), {ok, 1}.
port_please(Name, Host) -> port_please(Name, Host, infinity).
port_please(_, _, _) -> {port, persistent_term:get(port), 5}.
names(_) -> {error, address}.

%% ---- the second node: answers until its standard input ends ----
serve() ->
    register(grains, self()),
    io:format("~p~n", [persistent_term:get(port)]),
    spawn(fun() -> eof = io:get_line(""), halt(0) end),
    grains([spawn(fun grains:echo/0) || _ <- lists:seq(1, 1024)]).

grains(All) -> receive From -> From ! {grains, All}, grains(All) end.

row(Callers) ->
    {ok, [[Program, Workers]]} = init:get_argument(self),
    Server = open_port({spawn_executable, Program}, [{args, ["serve", Workers, "0"]}, {line, 100}]),
    Port = receive {Server, {data, {eol, Line}}} -> list_to_integer(Line) end,
    {ok, _} = net_kernel:start([calls@localhost, shortnames]),
    persistent_term:put(port, Port),
    {grains, 'serves@localhost'} ! self(),
    All = receive {grains, Some} -> list_to_tuple(Some) end,
    fun(N) ->
        grains:each(Callers, N, fun(Caller, I) -> grains:call(element(Caller + 1, All), I) end)
    end.
