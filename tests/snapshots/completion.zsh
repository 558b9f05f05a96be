#compdef anabranch
# What zsh completes after `anabranch`; made by `anabranch completion zsh`.
_anabranch() {
    local -a commands
    local context state state_descr line
    typeset -A opt_args
    commands=(
        'demo:see a program run, from a generator to windowed results'
        'run:run the program of a file'
        'explain:say what a program is made of, what runs in parallel, and why'
        'bench:run a benchmark of the repository'
        'doctor:see whether this machine has all that is needed, and mend what is ours'
        'state:say what a checkpoint holds; check it, or write its state as Parquet'
        'why:say what the query of a checkpoint waits for'
        'top:watch queries as they go, by their checkpoints'
        'completion:print a script that lets a shell complete commands and options'
    )
    _arguments -C '*-h[show this help message and exit]' '*--help[show this help message and exit]' '*--version[say which it is]' '1:command:->command' '*::argument:->argument'
    case $state in
        command) _describe -t commands command commands ;;
        argument)
            case $words[1] in
                demo) _arguments '*-h[show this help message and exit]' '*--help[show this help message and exit]' '*--json[one JSON object on standard output]' '*--master[Spark'\''s master (default\: local\[*\])]:value: ' ;;
                run) _arguments '*-h[show this help message and exit]' '*--help[show this help message and exit]' '*--json[one JSON object on standard output]' '*:a Python file, and the name of a program in it if it has several:_files -g "*.py"' '*--trigger["now"\: all that is there, then end; or an epoch every so often, such as "500 ms" (default\: "1 s")]:value: ' '*--max-rows[rows of a partition in an epoch, at most (default\: what a cycle can take)]:value: ' '*--checkpoint[go on from here, and leave off here; of several programs, a directory in it for each (default\: one that is removed at the end)]:value:_files -/' '*--parallelism[lanes (default\: as many as cores)]:value: ' '*--goal[how long what a window gives may take from its end, such as "2 s"\: misses are counted, and of several programs the one goes first that would miss it (default\: none)]:value: ' '*--policy[whose turn it is, of several programs\: klink, fcfs, rr, hr, srw, nem, spark-fifo, spark-fair (default\: klink, by how soon the next window has to fire)]:value:(klink fcfs rr hr srw nem spark-fifo spark-fair)' '*--memory-limit[of rows that several programs have read and not committed, such as 2GB\: above it what frees most goes first (default\: none)]:value: ' '*--master[Spark'\''s master (default\: local\[*\])]:value: ' '*--conf[a setting of Spark'\''s, such as spark.driver.memory=4g; may be given several times]:value: ' '*--metrics-port[show figures for Prometheus at http\://127.0.0.1\:PORT/metrics (default\: nowhere)]:value: ' '*--progress[append a line of JSON for every commit (default\: nowhere)]:value:_files' '*--otel[give figures and spans to OpenTelemetry, as the file or opentelemetry-instrument has set it up]' '*--sequential[run it by the oracle, in this process]' ;;
                explain) _arguments '*-h[show this help message and exit]' '*--help[show this help message and exit]' '*--json[one JSON object on standard output]' ':a Python file with a program:_files -g "*.py"' '*--format[how to tell it]:value:(text json mermaid)' '*--mermaid[draw it]' ;;
                bench) _arguments '*-h[show this help message and exit]' '*--help[show this help message and exit]' '*--json[one JSON object on standard output]' ':which one; none\: say which there are: ' '*--quick[smaller inputs and fewer runs]' '*--peer[measure beside another system]:value: ' '*--runs[runs of each system]:value: ' '*--minutes[how long the soak takes]:value: ' '*--save[write results files also if --quick]' ;;
                doctor) _arguments '*-h[show this help message and exit]' '*--help[show this help message and exit]' '*--json[one JSON object on standard output]' '*--fix[remove what dead processes of ours left, and archives of classes that are stale; what belongs to somebody is left alone]' '*--spark[start Spark too, and check all that is relied on]' '*--master[Spark'\''s master (default\: local\[2\])]:value: ' ;;
                state) _arguments '*-h[show this help message and exit]' '*--help[show this help message and exit]' '*--json[one JSON object on standard output]' ':a checkpoint, in use or not:_files -/' '*--keys[keys of each operator to show (5)]:value: ' '*--verify[read every file that the last commit needs, and check checksums, chains and slices]' '*--export[write the state as Parquet\: to a file that ends in .parquet, else to a directory]:value:_files' '*--force[replace what is there already]' ;;
                why) _arguments '*-h[show this help message and exit]' '*--help[show this help message and exit]' '*--json[one JSON object on standard output]' ':the checkpoint of a query, running or not:_files -/' ;;
                top) _arguments '*-h[show this help message and exit]' '*--help[show this help message and exit]' '*--json[one JSON object on standard output]' '*:the checkpoint of a running query:_files -/' '*--every[seconds between looks (1)]:value: ' '*--once[look once and end, as with --json and without a screen]' ;;
                completion) _arguments '*-h[show this help message and exit]' '*--help[show this help message and exit]' '*--json[one JSON object on standard output]' ':bash, zsh, fish:(bash zsh fish)' ;;
            esac ;;
    esac
}
# Found by its name it is asked at once; read from a file it waits until it is.
if [[ $funcstack[1] == _anabranch ]]; then
    _anabranch "$@"
else
    compdef _anabranch anabranch
fi
