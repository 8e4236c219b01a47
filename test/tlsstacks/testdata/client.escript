#!/usr/bin/env escript
%% usage: client.escript HOST PORT NAME CAS
%% Connects, and ends with 0 if the server's certificate is good.
main([Host, Port, Name, CAs]) ->
    {ok, _} = application:ensure_all_started(ssl),
    logger:set_primary_config(level, none),
    {ok, Address} = inet:parse_address(Host),
    Match = public_key:pkix_verify_hostname_match_fun(https),
    Expect = case inet:parse_address(Name) of
        {ok, IP} -> [{server_name_indication, disable}, {verify_fun, {fun
            (Cert, valid_peer, _) ->
                case public_key:pkix_verify_hostname(Cert, [{ip, IP}]) of
                    true -> {valid, ok};
                    false -> {fail, hostname_check_failed}
                end;
            (_, {bad_cert, Reason}, _) -> {fail, Reason};
            (_, {extension, _}, S) -> {unknown, S};
            (_, valid, S) -> {valid, S}
        end, none}}];
        _ -> [{server_name_indication, Name}]
    end,
    case ssl:connect(Address, list_to_integer(Port), [{verify, verify_peer}, {cacertfile, CAs}, {customize_hostname_check, [{match_fun, Match}]} | Expect]) of
        {ok, _} -> halt(0);
        {error, Reason} -> io:format(standard_error, "~p~n", [Reason]), halt(1)
    end.
