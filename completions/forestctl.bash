_forestctl() {
    local i cur prev opts cmd
    COMPREPLY=()
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        cur="$2"
    else
        cur="${COMP_WORDS[COMP_CWORD]}"
    fi
    prev="$3"
    cmd=""
    opts=""

    for i in "${COMP_WORDS[@]:0:COMP_CWORD}"
    do
        case "${cmd},${i}" in
            ",$1")
                cmd="forestctl"
                ;;
            forestctl,audit-logprobs)
                cmd="forestctl__subcmd__audit__subcmd__logprobs"
                ;;
            forestctl,build-rows)
                cmd="forestctl__subcmd__build__subcmd__rows"
                ;;
            forestctl,cleanup-plan)
                cmd="forestctl__subcmd__cleanup__subcmd__plan"
                ;;
            forestctl,completions)
                cmd="forestctl__subcmd__completions"
                ;;
            forestctl,config)
                cmd="forestctl__subcmd__config"
                ;;
            forestctl,diff)
                cmd="forestctl__subcmd__diff"
                ;;
            forestctl,doctor)
                cmd="forestctl__subcmd__doctor"
                ;;
            forestctl,du)
                cmd="forestctl__subcmd__du"
                ;;
            forestctl,generated)
                cmd="forestctl__subcmd__generated"
                ;;
            forestctl,help)
                cmd="forestctl__subcmd__help"
                ;;
            forestctl,ingest)
                cmd="forestctl__subcmd__ingest"
                ;;
            forestctl,inspect)
                cmd="forestctl__subcmd__inspect"
                ;;
            forestctl,ls)
                cmd="forestctl__subcmd__ls"
                ;;
            forestctl,man)
                cmd="forestctl__subcmd__man"
                ;;
            forestctl,report)
                cmd="forestctl__subcmd__report"
                ;;
            forestctl,select)
                cmd="forestctl__subcmd__select"
                ;;
            forestctl,show)
                cmd="forestctl__subcmd__show"
                ;;
            forestctl,step)
                cmd="forestctl__subcmd__step"
                ;;
            forestctl,validate)
                cmd="forestctl__subcmd__validate"
                ;;
            forestctl,why)
                cmd="forestctl__subcmd__why"
                ;;
            forestctl__subcmd__config,check)
                cmd="forestctl__subcmd__config__subcmd__check"
                ;;
            forestctl__subcmd__config,help)
                cmd="forestctl__subcmd__config__subcmd__help"
                ;;
            forestctl__subcmd__config,show)
                cmd="forestctl__subcmd__config__subcmd__show"
                ;;
            forestctl__subcmd__config__subcmd__help,check)
                cmd="forestctl__subcmd__config__subcmd__help__subcmd__check"
                ;;
            forestctl__subcmd__config__subcmd__help,help)
                cmd="forestctl__subcmd__config__subcmd__help__subcmd__help"
                ;;
            forestctl__subcmd__config__subcmd__help,show)
                cmd="forestctl__subcmd__config__subcmd__help__subcmd__show"
                ;;
            forestctl__subcmd__help,audit-logprobs)
                cmd="forestctl__subcmd__help__subcmd__audit__subcmd__logprobs"
                ;;
            forestctl__subcmd__help,build-rows)
                cmd="forestctl__subcmd__help__subcmd__build__subcmd__rows"
                ;;
            forestctl__subcmd__help,cleanup-plan)
                cmd="forestctl__subcmd__help__subcmd__cleanup__subcmd__plan"
                ;;
            forestctl__subcmd__help,completions)
                cmd="forestctl__subcmd__help__subcmd__completions"
                ;;
            forestctl__subcmd__help,config)
                cmd="forestctl__subcmd__help__subcmd__config"
                ;;
            forestctl__subcmd__help,diff)
                cmd="forestctl__subcmd__help__subcmd__diff"
                ;;
            forestctl__subcmd__help,doctor)
                cmd="forestctl__subcmd__help__subcmd__doctor"
                ;;
            forestctl__subcmd__help,du)
                cmd="forestctl__subcmd__help__subcmd__du"
                ;;
            forestctl__subcmd__help,generated)
                cmd="forestctl__subcmd__help__subcmd__generated"
                ;;
            forestctl__subcmd__help,help)
                cmd="forestctl__subcmd__help__subcmd__help"
                ;;
            forestctl__subcmd__help,ingest)
                cmd="forestctl__subcmd__help__subcmd__ingest"
                ;;
            forestctl__subcmd__help,inspect)
                cmd="forestctl__subcmd__help__subcmd__inspect"
                ;;
            forestctl__subcmd__help,ls)
                cmd="forestctl__subcmd__help__subcmd__ls"
                ;;
            forestctl__subcmd__help,man)
                cmd="forestctl__subcmd__help__subcmd__man"
                ;;
            forestctl__subcmd__help,report)
                cmd="forestctl__subcmd__help__subcmd__report"
                ;;
            forestctl__subcmd__help,select)
                cmd="forestctl__subcmd__help__subcmd__select"
                ;;
            forestctl__subcmd__help,show)
                cmd="forestctl__subcmd__help__subcmd__show"
                ;;
            forestctl__subcmd__help,step)
                cmd="forestctl__subcmd__help__subcmd__step"
                ;;
            forestctl__subcmd__help,validate)
                cmd="forestctl__subcmd__help__subcmd__validate"
                ;;
            forestctl__subcmd__help,why)
                cmd="forestctl__subcmd__help__subcmd__why"
                ;;
            forestctl__subcmd__help__subcmd__config,check)
                cmd="forestctl__subcmd__help__subcmd__config__subcmd__check"
                ;;
            forestctl__subcmd__help__subcmd__config,show)
                cmd="forestctl__subcmd__help__subcmd__config__subcmd__show"
                ;;
            *)
                ;;
        esac
    done

    case "${cmd}" in
        forestctl)
            opts="-j -q -v -h -V --format --color --jobs --quiet --verbose --help --version ingest validate select inspect ls show why diff build-rows du report cleanup-plan config doctor step audit-logprobs completions man generated help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 1 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --format)
                    COMPREPLY=($(compgen -W "human json jsonl csv" -- "${cur}"))
                    return 0
                    ;;
                --color)
                    COMPREPLY=($(compgen -W "auto always never" -- "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__audit__subcmd__logprobs)
            opts="-j -q -v -h -V --model --archive --config --policy --selector-python --selector-timeout --assume-complete --min-valid-fraction --dtype --device --pack-tokens --context-tolerance --tolerance --mean-tolerance --weight-version --top --fail-on --format --color --jobs --quiet --verbose --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --model)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --archive)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --policy)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-python)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --min-valid-fraction)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --dtype)
                    COMPREPLY=($(compgen -W "float64 float32 bfloat16" -- "${cur}"))
                    return 0
                    ;;
                --device)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pack-tokens)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --context-tolerance)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tolerance)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mean-tolerance)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --weight-version)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --top)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fail-on)
                    COMPREPLY=($(compgen -W "never error warning" -- "${cur}"))
                    return 0
                    ;;
                --format)
                    COMPREPLY=($(compgen -W "human json jsonl csv" -- "${cur}"))
                    return 0
                    ;;
                --color)
                    COMPREPLY=($(compgen -W "auto always never" -- "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__build__subcmd__rows)
            opts="-o -j -q -v -h -V --output --force --config --policy --selector-python --selector-timeout --assume-complete --min-valid-fraction --data-parallel --train-micro-batch --logprob-micro-batch --sequence-packing --min-step-batch-fraction --prompts-per-step --max-skipped-prompts --max-consecutive-dropped-prompts --pack-tokens --packer --row-pad-multiple --microbatch-order --pack-seed --no-leave-one-out --no-normalize --advantage-clip-low --advantage-clip-high --overlong-filtering --masked-reward-policy --seq-logprob-error-threshold --mask-errors --shard --prev-logprobs --gradient-weights --format --color --jobs --quiet --verbose --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --output)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -o)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --policy)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-python)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --min-valid-fraction)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --data-parallel)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --train-micro-batch)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --logprob-micro-batch)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sequence-packing)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --min-step-batch-fraction)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --prompts-per-step)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-skipped-prompts)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-consecutive-dropped-prompts)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pack-tokens)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --packer)
                    COMPREPLY=($(compgen -W "concatenative first_fit_decreasing first_fit_shuffle modified_first_fit_decreasing" -- "${cur}"))
                    return 0
                    ;;
                --row-pad-multiple)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --microbatch-order)
                    COMPREPLY=($(compgen -W "packer largest_first" -- "${cur}"))
                    return 0
                    ;;
                --pack-seed)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --no-leave-one-out)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --no-normalize)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --advantage-clip-low)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --advantage-clip-high)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --overlong-filtering)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --masked-reward-policy)
                    COMPREPLY=($(compgen -W "exclude include include_all" -- "${cur}"))
                    return 0
                    ;;
                --seq-logprob-error-threshold)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --shard)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --prev-logprobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --gradient-weights)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --format)
                    COMPREPLY=($(compgen -W "human json jsonl csv" -- "${cur}"))
                    return 0
                    ;;
                --color)
                    COMPREPLY=($(compgen -W "auto always never" -- "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__cleanup__subcmd__plan)
            opts="-j -q -v -h -V --format --color --jobs --quiet --verbose --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --format)
                    COMPREPLY=($(compgen -W "human json jsonl csv" -- "${cur}"))
                    return 0
                    ;;
                --color)
                    COMPREPLY=($(compgen -W "auto always never" -- "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__completions)
            opts="-j -q -v -h -V --format --color --jobs --quiet --verbose --help --version bash elvish fish powershell zsh"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --format)
                    COMPREPLY=($(compgen -W "human json jsonl csv" -- "${cur}"))
                    return 0
                    ;;
                --color)
                    COMPREPLY=($(compgen -W "auto always never" -- "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__config)
            opts="-j -q -v -h -V --format --color --jobs --quiet --verbose --help --version check show help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --format)
                    COMPREPLY=($(compgen -W "human json jsonl csv" -- "${cur}"))
                    return 0
                    ;;
                --color)
                    COMPREPLY=($(compgen -W "auto always never" -- "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__config__subcmd__check)
            opts="-j -q -v -h -V --selector-python --selector-timeout --format --color --jobs --quiet --verbose --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --selector-python)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --format)
                    COMPREPLY=($(compgen -W "human json jsonl csv" -- "${cur}"))
                    return 0
                    ;;
                --color)
                    COMPREPLY=($(compgen -W "auto always never" -- "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__config__subcmd__help)
            opts="check show help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__config__subcmd__help__subcmd__check)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__config__subcmd__help__subcmd__help)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__config__subcmd__help__subcmd__show)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__config__subcmd__show)
            opts="-j -q -v -h -V --policy --selector-python --selector-timeout --assume-complete --min-valid-fraction --data-parallel --train-micro-batch --logprob-micro-batch --sequence-packing --min-step-batch-fraction --prompts-per-step --max-skipped-prompts --max-consecutive-dropped-prompts --pack-tokens --packer --row-pad-multiple --microbatch-order --pack-seed --no-leave-one-out --no-normalize --advantage-clip-low --advantage-clip-high --overlong-filtering --masked-reward-policy --seq-logprob-error-threshold --format --color --jobs --quiet --verbose --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --policy)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-python)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --min-valid-fraction)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --data-parallel)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --train-micro-batch)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --logprob-micro-batch)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sequence-packing)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --min-step-batch-fraction)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --prompts-per-step)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-skipped-prompts)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-consecutive-dropped-prompts)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pack-tokens)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --packer)
                    COMPREPLY=($(compgen -W "concatenative first_fit_decreasing first_fit_shuffle modified_first_fit_decreasing" -- "${cur}"))
                    return 0
                    ;;
                --row-pad-multiple)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --microbatch-order)
                    COMPREPLY=($(compgen -W "packer largest_first" -- "${cur}"))
                    return 0
                    ;;
                --pack-seed)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --no-leave-one-out)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --no-normalize)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --advantage-clip-low)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --advantage-clip-high)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --overlong-filtering)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --masked-reward-policy)
                    COMPREPLY=($(compgen -W "exclude include include_all" -- "${cur}"))
                    return 0
                    ;;
                --seq-logprob-error-threshold)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --format)
                    COMPREPLY=($(compgen -W "human json jsonl csv" -- "${cur}"))
                    return 0
                    ;;
                --color)
                    COMPREPLY=($(compgen -W "auto always never" -- "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__diff)
            opts="-j -q -v -h -V --policy --selector-python --selector-timeout --assume-complete --min-valid-fraction --config --no-leave-one-out --no-normalize --advantage-clip-low --advantage-clip-high --overlong-filtering --masked-reward-policy --format --color --jobs --quiet --verbose --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --policy)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-python)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --min-valid-fraction)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --no-leave-one-out)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --no-normalize)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --advantage-clip-low)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --advantage-clip-high)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --overlong-filtering)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --masked-reward-policy)
                    COMPREPLY=($(compgen -W "exclude include include_all" -- "${cur}"))
                    return 0
                    ;;
                --format)
                    COMPREPLY=($(compgen -W "human json jsonl csv" -- "${cur}"))
                    return 0
                    ;;
                --color)
                    COMPREPLY=($(compgen -W "auto always never" -- "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__doctor)
            opts="-j -q -v -h -V --selector-python --format --color --jobs --quiet --verbose --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --selector-python)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --format)
                    COMPREPLY=($(compgen -W "human json jsonl csv" -- "${cur}"))
                    return 0
                    ;;
                --color)
                    COMPREPLY=($(compgen -W "auto always never" -- "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__du)
            opts="-j -q -v -h -V --by --model --pack-tokens --ranks --config --policy --selector-python --selector-timeout --assume-complete --min-valid-fraction --format --color --jobs --quiet --verbose --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --by)
                    COMPREPLY=($(compgen -W "archive group rollout" -- "${cur}"))
                    return 0
                    ;;
                --model)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pack-tokens)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ranks)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --policy)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-python)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --min-valid-fraction)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --format)
                    COMPREPLY=($(compgen -W "human json jsonl csv" -- "${cur}"))
                    return 0
                    ;;
                --color)
                    COMPREPLY=($(compgen -W "auto always never" -- "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__generated)
            opts="-j -q -v -h -V --format --color --jobs --quiet --verbose --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --format)
                    COMPREPLY=($(compgen -W "human json jsonl csv" -- "${cur}"))
                    return 0
                    ;;
                --color)
                    COMPREPLY=($(compgen -W "auto always never" -- "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__help)
            opts="ingest validate select inspect ls show why diff build-rows du report cleanup-plan config doctor step audit-logprobs completions man generated help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__help__subcmd__audit__subcmd__logprobs)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__help__subcmd__build__subcmd__rows)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__help__subcmd__cleanup__subcmd__plan)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__help__subcmd__completions)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__help__subcmd__config)
            opts="check show"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__help__subcmd__config__subcmd__check)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__help__subcmd__config__subcmd__show)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__help__subcmd__diff)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__help__subcmd__doctor)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__help__subcmd__du)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__help__subcmd__generated)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__help__subcmd__help)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__help__subcmd__ingest)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__help__subcmd__inspect)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__help__subcmd__ls)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__help__subcmd__man)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__help__subcmd__report)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__help__subcmd__select)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__help__subcmd__show)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__help__subcmd__step)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__help__subcmd__validate)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__help__subcmd__why)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__ingest)
            opts="-o -j -q -v -h -V --files-from --output --force --format --color --jobs --quiet --verbose --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --files-from)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --output)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -o)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --format)
                    COMPREPLY=($(compgen -W "human json jsonl csv" -- "${cur}"))
                    return 0
                    ;;
                --color)
                    COMPREPLY=($(compgen -W "auto always never" -- "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__inspect)
            opts="-j -q -v -h -V --svg --force --tokenizer --config --policy --selector-python --selector-timeout --assume-complete --min-valid-fraction --no-leave-one-out --no-normalize --advantage-clip-low --advantage-clip-high --overlong-filtering --masked-reward-policy --format --color --jobs --quiet --verbose --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --svg)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tokenizer)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --policy)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-python)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --min-valid-fraction)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --no-leave-one-out)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --no-normalize)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --advantage-clip-low)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --advantage-clip-high)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --overlong-filtering)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --masked-reward-policy)
                    COMPREPLY=($(compgen -W "exclude include include_all" -- "${cur}"))
                    return 0
                    ;;
                --format)
                    COMPREPLY=($(compgen -W "human json jsonl csv" -- "${cur}"))
                    return 0
                    ;;
                --color)
                    COMPREPLY=($(compgen -W "auto always never" -- "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__ls)
            opts="-j -q -v -h -V --group --verdict --reason --finding --min-reward --max-reward --source --sort --reverse --config --policy --selector-python --selector-timeout --assume-complete --min-valid-fraction --no-leave-one-out --no-normalize --advantage-clip-low --advantage-clip-high --overlong-filtering --masked-reward-policy --format --color --jobs --quiet --verbose --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --group)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --verdict)
                    COMPREPLY=($(compgen -W "valid masked dropped" -- "${cur}"))
                    return 0
                    ;;
                --reason)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --finding)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --min-reward)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-reward)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --source)
                    COMPREPLY=($(compgen -W "staged gym_store inline_rollouts" -- "${cur}"))
                    return 0
                    ;;
                --sort)
                    COMPREPLY=($(compgen -W "id reward tokens calls rows" -- "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --policy)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-python)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --min-valid-fraction)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --no-leave-one-out)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --no-normalize)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --advantage-clip-low)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --advantage-clip-high)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --overlong-filtering)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --masked-reward-policy)
                    COMPREPLY=($(compgen -W "exclude include include_all" -- "${cur}"))
                    return 0
                    ;;
                --format)
                    COMPREPLY=($(compgen -W "human json jsonl csv" -- "${cur}"))
                    return 0
                    ;;
                --color)
                    COMPREPLY=($(compgen -W "auto always never" -- "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__man)
            opts="-j -q -v -h -V --format --color --jobs --quiet --verbose --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --format)
                    COMPREPLY=($(compgen -W "human json jsonl csv" -- "${cur}"))
                    return 0
                    ;;
                --color)
                    COMPREPLY=($(compgen -W "auto always never" -- "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__report)
            opts="-o -j -q -v -h -V --output --force --rollout --tokenizer --config --policy --selector-python --selector-timeout --assume-complete --min-valid-fraction --data-parallel --train-micro-batch --logprob-micro-batch --sequence-packing --min-step-batch-fraction --prompts-per-step --max-skipped-prompts --max-consecutive-dropped-prompts --pack-tokens --packer --row-pad-multiple --microbatch-order --pack-seed --no-leave-one-out --no-normalize --advantage-clip-low --advantage-clip-high --overlong-filtering --masked-reward-policy --seq-logprob-error-threshold --prev-logprobs --format --color --jobs --quiet --verbose --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --output)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -o)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --rollout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tokenizer)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --policy)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-python)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --min-valid-fraction)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --data-parallel)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --train-micro-batch)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --logprob-micro-batch)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sequence-packing)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --min-step-batch-fraction)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --prompts-per-step)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-skipped-prompts)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-consecutive-dropped-prompts)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pack-tokens)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --packer)
                    COMPREPLY=($(compgen -W "concatenative first_fit_decreasing first_fit_shuffle modified_first_fit_decreasing" -- "${cur}"))
                    return 0
                    ;;
                --row-pad-multiple)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --microbatch-order)
                    COMPREPLY=($(compgen -W "packer largest_first" -- "${cur}"))
                    return 0
                    ;;
                --pack-seed)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --no-leave-one-out)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --no-normalize)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --advantage-clip-low)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --advantage-clip-high)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --overlong-filtering)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --masked-reward-policy)
                    COMPREPLY=($(compgen -W "exclude include include_all" -- "${cur}"))
                    return 0
                    ;;
                --seq-logprob-error-threshold)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --prev-logprobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --format)
                    COMPREPLY=($(compgen -W "human json jsonl csv" -- "${cur}"))
                    return 0
                    ;;
                --color)
                    COMPREPLY=($(compgen -W "auto always never" -- "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__select)
            opts="-j -q -v -h -V --config --policy --selector-python --selector-timeout --assume-complete --min-valid-fraction --format --color --jobs --quiet --verbose --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --policy)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-python)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --min-valid-fraction)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --format)
                    COMPREPLY=($(compgen -W "human json jsonl csv" -- "${cur}"))
                    return 0
                    ;;
                --color)
                    COMPREPLY=($(compgen -W "auto always never" -- "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__show)
            opts="-j -q -v -h -V --tokenizer --config --policy --selector-python --selector-timeout --assume-complete --min-valid-fraction --no-leave-one-out --no-normalize --advantage-clip-low --advantage-clip-high --overlong-filtering --masked-reward-policy --format --color --jobs --quiet --verbose --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --tokenizer)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --policy)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-python)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --min-valid-fraction)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --no-leave-one-out)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --no-normalize)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --advantage-clip-low)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --advantage-clip-high)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --overlong-filtering)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --masked-reward-policy)
                    COMPREPLY=($(compgen -W "exclude include include_all" -- "${cur}"))
                    return 0
                    ;;
                --format)
                    COMPREPLY=($(compgen -W "human json jsonl csv" -- "${cur}"))
                    return 0
                    ;;
                --color)
                    COMPREPLY=($(compgen -W "auto always never" -- "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__step)
            opts="-o -j -q -v -h -V --model --resume --output --steps --minibatches --reference-model --prev-model --kl-coef --lr --weight-decay --max-grad-norm --betas --dtype --device --seed --pack-tokens --share-prefixes --attention --deterministic --config --dump-gradients --dump-logprobs --dump-rows --tensorboard --profile-time --force --measure --format --color --jobs --quiet --verbose --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --model)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --resume)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --output)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -o)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --steps)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --minibatches)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reference-model)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --prev-model)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kl-coef)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --lr)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --weight-decay)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-grad-norm)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --betas)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --dtype)
                    COMPREPLY=($(compgen -W "float64 float32 bfloat16" -- "${cur}"))
                    return 0
                    ;;
                --device)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seed)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pack-tokens)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --share-prefixes)
                    COMPREPLY=($(compgen -W "auto always never" -- "${cur}"))
                    return 0
                    ;;
                --attention)
                    COMPREPLY=($(compgen -W "auto suffix cascade" -- "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --dump-gradients)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --dump-logprobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --dump-rows)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tensorboard)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --measure)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --format)
                    COMPREPLY=($(compgen -W "human json jsonl csv" -- "${cur}"))
                    return 0
                    ;;
                --color)
                    COMPREPLY=($(compgen -W "auto always never" -- "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__validate)
            opts="-j -q -v -h -V --cumulative --read-data --policy --selector-python --selector-timeout --config --assume-complete --report --fail-on --deny --warn --allow --format --color --jobs --quiet --verbose --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --cumulative)
                    COMPREPLY=($(compgen -W "endpoints all" -- "${cur}"))
                    return 0
                    ;;
                --read-data)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --policy)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-python)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --report)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fail-on)
                    COMPREPLY=($(compgen -W "never error warning" -- "${cur}"))
                    return 0
                    ;;
                --deny)
                    COMPREPLY=($(compgen -W "malformed_json malformed_record malformed_receipt malformed_media malformed_rollout line_too_long unreadable_source quarantine_full superseded_attempt malformed_sidecar orphan_tensor token_id_out_of_range conflicting_record unknown_scope conflicting_store_entry torn_store_tail store_unreadable unresolved_parent parent_digest_mismatch unsupported_schema unsupported_digest unsupported_extras_digest unsupported_fingerprint unsupported_replay unsupported_recovery rollout_failed capture_poisoned empty_manifest duplicate_manifest_row duplicate_staging_key row_count_mismatch duplicate_snapshot snapshot_identity_mismatch snapshot_order_mismatch wrong_rollout wrong_model_call_id wrong_parent_call_id wrong_mode wrong_prev_len wrong_delta_len wrong_cum_len wrong_weight_version wrong_digest wrong_extras_digest wrong_chain_hash wrong_cumulative_hash wrong_schema_version wrong_digest_version wrong_extras_digest_version invalid_snapshot corrupt_digest corrupt_extras_digest missing_parent parent_length_mismatch lineage_cycle missing_terminal chain_hash_mismatch invalid_mask_order empty_generation cumulative_hash_mismatch missing_receipt receipt_reward_mismatch uncommitted_record unaccounted_call capture_pending capture_failed capture_cancelled completion_failed completeness_unknown capture_incomplete completion_unrecorded clamped_logprob positive_logprob entry_digest_mismatch media_flag_mismatch media_metadata_mismatch invalid_media_geometry media_span_order media_span_outside_prompt media_token_mismatch media_uncovered media_not_new media_retained_changed media_prefix_mismatch missing_media_tensor unexpected_media_tensor invalid_media_tensor media_count_mismatch media_size_mismatch media_frame_mismatch media_size_indivisible media_patch_mismatch media_merge_mismatch media_frames_mixed media_dtype_mismatch media_patch_size_mismatch selection_not_closed failed_selected_call missing_reward missing_logprob missing_evidence ambiguous_evidence contradictory_evidence duplicated_evidence unmatched_evidence partial_generation unsupported_item several_sessions terminal_not_selected terminal_mismatch unattributed_terminal missing_completion selector_failed selector_timeout invalid_selection no_verified_layout too_few_valid_rollouts inconsistent_group incomplete_group route_shape_mismatch invalid_route overlong seq_logprob_error environment_masked corrupt_file missing_tensor corrupt_tensor inconsistent_archive unlisted_file unknown_code row_span_mismatch row_context_mismatch captured_logprob_mismatch warnings" -- "${cur}"))
                    return 0
                    ;;
                --warn)
                    COMPREPLY=($(compgen -W "malformed_json malformed_record malformed_receipt malformed_media malformed_rollout line_too_long unreadable_source quarantine_full superseded_attempt malformed_sidecar orphan_tensor token_id_out_of_range conflicting_record unknown_scope conflicting_store_entry torn_store_tail store_unreadable unresolved_parent parent_digest_mismatch unsupported_schema unsupported_digest unsupported_extras_digest unsupported_fingerprint unsupported_replay unsupported_recovery rollout_failed capture_poisoned empty_manifest duplicate_manifest_row duplicate_staging_key row_count_mismatch duplicate_snapshot snapshot_identity_mismatch snapshot_order_mismatch wrong_rollout wrong_model_call_id wrong_parent_call_id wrong_mode wrong_prev_len wrong_delta_len wrong_cum_len wrong_weight_version wrong_digest wrong_extras_digest wrong_chain_hash wrong_cumulative_hash wrong_schema_version wrong_digest_version wrong_extras_digest_version invalid_snapshot corrupt_digest corrupt_extras_digest missing_parent parent_length_mismatch lineage_cycle missing_terminal chain_hash_mismatch invalid_mask_order empty_generation cumulative_hash_mismatch missing_receipt receipt_reward_mismatch uncommitted_record unaccounted_call capture_pending capture_failed capture_cancelled completion_failed completeness_unknown capture_incomplete completion_unrecorded clamped_logprob positive_logprob entry_digest_mismatch media_flag_mismatch media_metadata_mismatch invalid_media_geometry media_span_order media_span_outside_prompt media_token_mismatch media_uncovered media_not_new media_retained_changed media_prefix_mismatch missing_media_tensor unexpected_media_tensor invalid_media_tensor media_count_mismatch media_size_mismatch media_frame_mismatch media_size_indivisible media_patch_mismatch media_merge_mismatch media_frames_mixed media_dtype_mismatch media_patch_size_mismatch selection_not_closed failed_selected_call missing_reward missing_logprob missing_evidence ambiguous_evidence contradictory_evidence duplicated_evidence unmatched_evidence partial_generation unsupported_item several_sessions terminal_not_selected terminal_mismatch unattributed_terminal missing_completion selector_failed selector_timeout invalid_selection no_verified_layout too_few_valid_rollouts inconsistent_group incomplete_group route_shape_mismatch invalid_route overlong seq_logprob_error environment_masked corrupt_file missing_tensor corrupt_tensor inconsistent_archive unlisted_file unknown_code row_span_mismatch row_context_mismatch captured_logprob_mismatch warnings" -- "${cur}"))
                    return 0
                    ;;
                --allow)
                    COMPREPLY=($(compgen -W "malformed_json malformed_record malformed_receipt malformed_media malformed_rollout line_too_long unreadable_source quarantine_full superseded_attempt malformed_sidecar orphan_tensor token_id_out_of_range conflicting_record unknown_scope conflicting_store_entry torn_store_tail store_unreadable unresolved_parent parent_digest_mismatch unsupported_schema unsupported_digest unsupported_extras_digest unsupported_fingerprint unsupported_replay unsupported_recovery rollout_failed capture_poisoned empty_manifest duplicate_manifest_row duplicate_staging_key row_count_mismatch duplicate_snapshot snapshot_identity_mismatch snapshot_order_mismatch wrong_rollout wrong_model_call_id wrong_parent_call_id wrong_mode wrong_prev_len wrong_delta_len wrong_cum_len wrong_weight_version wrong_digest wrong_extras_digest wrong_chain_hash wrong_cumulative_hash wrong_schema_version wrong_digest_version wrong_extras_digest_version invalid_snapshot corrupt_digest corrupt_extras_digest missing_parent parent_length_mismatch lineage_cycle missing_terminal chain_hash_mismatch invalid_mask_order empty_generation cumulative_hash_mismatch missing_receipt receipt_reward_mismatch uncommitted_record unaccounted_call capture_pending capture_failed capture_cancelled completion_failed completeness_unknown capture_incomplete completion_unrecorded clamped_logprob positive_logprob entry_digest_mismatch media_flag_mismatch media_metadata_mismatch invalid_media_geometry media_span_order media_span_outside_prompt media_token_mismatch media_uncovered media_not_new media_retained_changed media_prefix_mismatch missing_media_tensor unexpected_media_tensor invalid_media_tensor media_count_mismatch media_size_mismatch media_frame_mismatch media_size_indivisible media_patch_mismatch media_merge_mismatch media_frames_mixed media_dtype_mismatch media_patch_size_mismatch selection_not_closed failed_selected_call missing_reward missing_logprob missing_evidence ambiguous_evidence contradictory_evidence duplicated_evidence unmatched_evidence partial_generation unsupported_item several_sessions terminal_not_selected terminal_mismatch unattributed_terminal missing_completion selector_failed selector_timeout invalid_selection no_verified_layout too_few_valid_rollouts inconsistent_group incomplete_group route_shape_mismatch invalid_route overlong seq_logprob_error environment_masked corrupt_file missing_tensor corrupt_tensor inconsistent_archive unlisted_file unknown_code row_span_mismatch row_context_mismatch captured_logprob_mismatch warnings" -- "${cur}"))
                    return 0
                    ;;
                --format)
                    COMPREPLY=($(compgen -W "human json jsonl csv" -- "${cur}"))
                    return 0
                    ;;
                --color)
                    COMPREPLY=($(compgen -W "auto always never" -- "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        forestctl__subcmd__why)
            opts="-j -q -v -h -V --tokenizer --config --policy --selector-python --selector-timeout --assume-complete --min-valid-fraction --no-leave-one-out --no-normalize --advantage-clip-low --advantage-clip-high --overlong-filtering --masked-reward-policy --format --color --jobs --quiet --verbose --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --tokenizer)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --policy)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-python)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --selector-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --min-valid-fraction)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --no-leave-one-out)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --no-normalize)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --advantage-clip-low)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --advantage-clip-high)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --overlong-filtering)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --masked-reward-policy)
                    COMPREPLY=($(compgen -W "exclude include include_all" -- "${cur}"))
                    return 0
                    ;;
                --format)
                    COMPREPLY=($(compgen -W "human json jsonl csv" -- "${cur}"))
                    return 0
                    ;;
                --color)
                    COMPREPLY=($(compgen -W "auto always never" -- "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -j)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
    esac
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _forestctl -o nosort -o bashdefault -o default forestctl
else
    complete -F _forestctl -o bashdefault -o default forestctl
fi
