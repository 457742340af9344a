%% bench.erl - the scheduler's rows in Erlang.
%% usage: erl -noshell -s bench main ROW WORKERS N      prints RESULT ops=... seconds=...
-module(bench).
-export([main/1, resident/0]).

main([Row, _, Count]) ->
    N = list_to_integer(atom_to_list(Count)),
    grains:open(),
    case Row of
        serve -> remote:serve();
        'grain-bytes' -> io:format("RESULT bytes=~f~n", [grains:bytes(N)]);
        'idle-bytes' -> io:format("RESULT bytes=~f~n", [idle_bytes(N)]);
        fair -> fair(0, N);
        hog -> fair(1, N);
        _ -> timed_twice(row(Row), N)
    end,
    halt(0, [{flush, true}]).

timed_twice(Run, N) ->
    timed(Run, N),
    io:format("RESULT ops=~p seconds=~f~n", timed(Run, N)).

%% Each run in a process of its own, with a small heap.
timed(Run, N) ->
    Me = self(),
    Begin = now_s(),
    spawn_link(fun() -> Me ! {ran, Run(N)} end),
    receive {ran, Ops} -> [Ops, now_s() - Begin] end.

now_s() -> erlang:monotonic_time(nanosecond) / 1.0e9.

row('ping-pong') -> fun ping_pong/1;
row('ring') -> fun ring/1;
row('counting') -> fun counting/1;
row('fork-join-throughput') -> fun fork_join_throughput/1;
row('fork-join-create') -> fun fork_join_create/1;
row('big') -> fun big/1;
row('chameneos') -> fun chameneos/1;
row('skynet') -> fun skynet/1;
row('timers') -> fun timers/1;
row('remote-1') -> remote:row(1);
row('remote-64') -> remote:row(64);
row('remote-1024') -> remote:row(1024);
row(Row) -> grains:row(Row).

wait(N, What) -> [receive What -> ok end || _ <- lists:seq(1, N)].

%% ping-pong
ping_pong(N) ->
    Pong = spawn_link(fun pong/0),
    ping(N, Pong),
    Pong ! stop,
    N.

ping(0, _) -> ok;
ping(N, Pong) -> Pong ! {self(), N}, receive {pong, N} -> ping(N - 1, Pong) end.

pong() -> receive {From, N} -> From ! {pong, N}, pong(); stop -> ok end.

%% thread ring
ring(N) ->
    Me = self(),
    Last = spawn(fun() -> receive {next, Next} -> hop(Next, Me) end end),
    First = lists:foldl(fun(_, Next) -> spawn(fun() -> hop(Next, Me) end) end, Last,
                        lists:seq(2, 503)),
    Last ! {next, First},
    First ! N,
    receive done -> N end.

hop(Next, Done) ->
    receive
        0 -> Done ! done, Next ! stop;
        stop -> Next ! stop;
        Hops -> Next ! Hops - 1, hop(Next, Done)
    end.

%% counting
counting(N) ->
    Me = self(),
    Counter = spawn(fun() -> counter(0) end),
    spawn(fun() -> count(N, Counter), Counter ! {get, Me} end),
    receive {counted, Sum} -> Sum end.

count(0, _) -> ok;
count(N, Counter) -> Counter ! increment, count(N - 1, Counter).

counter(Sum) ->
    receive
        increment -> counter(Sum + 1);
        {get, From} -> From ! {counted, Sum}
    end.

%% fork-join
fork_join_throughput(N) ->
    Me = self(),
    Workers = [spawn(fun() -> wait(N div 60, work), Me ! done end) || _ <- lists:seq(1, 60)],
    [[Worker ! work || Worker <- Workers] || _ <- lists:seq(1, N div 60)],
    wait(60, done),
    N div 60 * 60.

fork_join_create(N) ->
    Me = self(),
    Count = counters:new(1, []),
    [spawn(fun() -> receive work -> counters:add(Count, 1, 1) end end) ! work
     || _ <- lists:seq(2, N)],
    until(Count, N - 1),
    spawn(fun() -> receive work -> Me ! done end end) ! work,
    wait(1, done),
    N.

until(Count, N) ->
    case counters:get(Count, 1) of
        N -> ok;
        _ -> erlang:yield(), until(Count, N)
    end.

%% big
big(N) ->
    Me = self(),
    All = [spawn(fun() -> receive {all, All} -> big(N div 120, I * 7919 + 1, All, Me) end end)
           || I <- lists:seq(0, 119)],
    [One ! {all, list_to_tuple(All)} || One <- All],
    wait(120, done),
    [One ! stop || One <- All],
    N div 120 * 120.

big(0, _, _, Done) -> Done ! done, big_pong();
big(N, Draw, All, Done) ->
    Next = Draw * 16807 rem 2147483647,
    element((Next bsr 8) rem 120 + 1, All) ! {ping, self()},
    big_pong(),
    big(N - 1, Next, All, Done).

big_pong() ->
    receive
        {ping, From} -> From ! pong, big_pong();
        pong -> ok;
        stop -> ok
    end.

%% chameneos
chameneos(N) ->
    Mall = self(),
    [spawn_link(fun() -> creature(Mall, I rem 3) end) || I <- lists:seq(1, 100)],
    meet(N),
    [receive {_, One} -> One ! stop end || _ <- lists:seq(1, 100)],
    N.

meet(0) -> ok;
meet(N) ->
    receive
        {A, One} -> receive {B, Other} -> One ! B, Other ! A end
    end,
    meet(N - 1).

creature(Mall, Colour) ->
    Mall ! {Colour, self()},
    receive
        stop -> ok;
        Colour -> creature(Mall, Colour);
        Other -> creature(Mall, 3 - Colour - Other)
    end.

%% skynet
skynet(N) ->
    Me = self(),
    spawn(fun() -> sky(Me, 0, N) end),
    Sum = N * (N - 1) div 2,
    receive Sum -> N end.

sky(Parent, Number, 1) -> Parent ! Number;
sky(Parent, Number, Size) ->
    Me = self(),
    [spawn(fun() -> sky(Me, Number + I * Size div 10, Size div 10) end) || I <- lists:seq(0, 9)],
    Parent ! lists:sum([receive Sum -> Sum end || _ <- lists:seq(1, 10)]).

%% timer churn
timers(N) ->
    Me = self(),
    [spawn(fun() -> churn(N div 1000), Me ! done end) || _ <- lists:seq(1, 1000)],
    wait(1000, done),
    N div 1000 * 1000.

churn(0) -> ok;
churn(N) ->
    Timer = erlang:send_after(1000, self(), late),
    erlang:yield(),
    erlang:cancel_timer(Timer),
    churn(N - 1).

%% 5,000 pairs play n round trips in all, beside hogs that never yield
fair(Hogs, N) ->
    Me = self(),
    Begin = now_s(),
    [spawn(fun hog/0) || _ <- lists:seq(1, Hogs)],
    [spawn(fun() -> Me ! {trips, trips(N div 5000, spawn_link(fun pong/0), [])} end)
     || _ <- lists:seq(1, 5000)],
    Trips = [receive {trips, Some} -> Some end || _ <- lists:seq(1, 5000)],
    Seconds = now_s() - Begin,
    Sorted = lists:sort(lists:append(Trips)),
    Ops = length(Sorted),
    io:format("RESULT ops=~p seconds=~f p99_us=~f~n",
              [Ops, Seconds, lists:nth(Ops * 99 div 100 + 1, Sorted) / 1000]).

hog() -> hog().

trips(0, Pong, Trips) -> Pong ! stop, Trips;
trips(N, Pong, Trips) ->
    Begin = erlang:monotonic_time(nanosecond),
    ping(1, Pong),
    trips(N - 1, Pong, [erlang:monotonic_time(nanosecond) - Begin | Trips]).

%% memory
resident() ->
    {ok, Text} = file:read_file("/proc/self/statm"),
    [_, Pages | _] = binary:split(Text, <<" ">>, [global]),
    binary_to_integer(Pages) * 4096.

idle_bytes(N) ->
    Before = resident(),
    All = [spawn(fun() -> receive stop -> ok end end) || _ <- lists:seq(1, N)],
    timer:sleep(1000),
    Bytes = (resident() - Before) / N,
    [One ! stop || One <- All],
    Bytes.
