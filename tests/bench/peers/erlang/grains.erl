%% grains.erl - grains' rows in Erlang: a grain is a process, found through ets when it has a name.
-module(grains).
-export([open/0, row/1, bytes/1, each/3, echo/0, call/2]).

row(one) -> fun(N) -> own(1, N) end;
row(ping) -> fun(N) -> own(100, N) end;
row(random) -> fun random/1;
row('random-named') -> fun random_named/1;
row('fan-out') -> fun fan_out/1;
row(activate) -> fun activate/1.

echo() -> receive {From, Number, Name} -> From ! {Number + 1, Name}, echo() end.

call(To, Number) ->
    To ! {self(), Number, <<"small">>},
    Next = Number + 1,
    receive {Next, _} -> ok end.

%% The name table: whoever asks first makes the grain.
open() -> ets:new(names, [named_table, public, {read_concurrency, true}]).

named(Key) ->
    case ets:lookup(names, Key) of
        [{_, Grain}] -> Grain;
        [] ->
            Grain = spawn(fun echo/0),
            case ets:insert_new(names, {Key, Grain}) of
                true -> Grain;
                false -> exit(Grain, kill), named(Key)
            end
    end.

known(N) ->
    case persistent_term:get(known, {}) of
        Known when tuple_size(Known) =:= N -> Known;
        _ ->
            persistent_term:put(known, list_to_tuple([named(Key) || Key <- lists:seq(0, N - 1)])),
            known(N)
    end.

%% So many callers at once, N calls in all; Work(Caller, I) makes one.
each(Callers, N, Work) ->
    Me = self(),
    [spawn_link(fun() -> work(N div Callers, Caller, Work), Me ! worked end)
     || Caller <- lists:seq(0, Callers - 1)],
    [receive worked -> ok end || _ <- lists:seq(1, Callers)],
    N div Callers * Callers.

work(0, _, _) -> ok;
work(I, Caller, Work) -> Work(Caller, I), work(I - 1, Caller, Work).

own(Callers, N) ->
    Known = known(Callers),
    each(Callers, N, fun(Caller, I) -> call(element(Caller + 1, Known), I) end).

%% In 59 bits, so that no product leaves the small integers' range for long.
mixed(Caller, I) ->
    X = (Caller bsl 24 bxor I) * 16#9E3779B1 band 16#7FFFFFFFFFFFFFF,
    (X bsr 24 bxor X) rem 100000.

random(N) ->
    known(100000),
    each(64, N, fun(Caller, I) -> call(element(mixed(Caller, I) + 1, known(100000)), I) end).

random_named(N) ->
    known(100000),
    each(64, N, fun(Caller, I) -> call(named(mixed(Caller, I)), I) end).

fan_out(N) ->
    Known = tuple_to_list(known(1000)),
    [begin
         [To ! {self(), 1, <<"small">>} || To <- Known],
         [receive {2, _} -> ok end || _ <- Known]
     end || _ <- lists:seq(1, (N + 999) div 1000)],
    (N + 999) div 1000 * 1000.

activate(N) ->
    First = ets:info(names, size),
    each(1, N, fun(_, I) -> call(named(First + I), I) end).

bytes(N) ->
    activate(1000),
    Before = bench:resident(),
    activate(N),
    timer:sleep(1000),
    (bench:resident() - Before) / N.
