# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_forestctl_global_optspecs
    string join \n format= color= j/jobs= q/quiet v/verbose h/help V/version
end

function __fish_forestctl_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_forestctl_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_forestctl_using_subcommand
    set -l cmd (__fish_forestctl_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c forestctl -n "__fish_forestctl_needs_command" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_needs_command" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_needs_command" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_needs_command" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_needs_command" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_needs_command" -s h -l help -d 'Print help'
complete -c forestctl -n "__fish_forestctl_needs_command" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "ingest" -d 'Read captures into an archive'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "validate" -d 'Prove an archive: digests, lengths, lineage, completeness'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "select" -d 'Choose the calls that train, with a verdict and reason for every rollout'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "build-rows" -d 'Turn selected calls into training rows, with masks, padding, and advantages'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "step" -d 'Run one GRPO optimizer step on rows'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "completions" -d 'Print shell completions'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "man" -d 'Print a man page'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "generated" -d 'Write the generated files of the repository'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c forestctl -n "__fish_forestctl_using_subcommand ingest" -s o -l output -d 'The archive to write' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand ingest" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_using_subcommand ingest" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_using_subcommand ingest" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand ingest" -l force -d 'Replace an existing archive'
complete -c forestctl -n "__fish_forestctl_using_subcommand ingest" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand ingest" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand ingest" -s h -l help -d 'Print help'
complete -c forestctl -n "__fish_forestctl_using_subcommand ingest" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -l fail-on -d 'Least severity of a finding that makes the exit code 1' -r -f -a "error\t'Wrong evidence only'
warning\t'Whatever masks, too'"
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -l cumulative -d 'Calls whose cumulative hash is computed again; all is quadratic in the length of a chain' -r -f -a "endpoints\t'Scored calls and calls without a child'
all\t'Every call'"
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -l read-data -d 'Read tensor data, too: all, one share of several (2/5), or a percentage (2.5%)' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_using_subcommand select" -l policy -d 'Which captured calls train' -r -f -a "returned_history\t'Calls whose generations the returned history holds'
all_captured\t'Every recorded call, abandoned retries and branches included'"
complete -c forestctl -n "__fish_forestctl_using_subcommand select" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_using_subcommand select" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_using_subcommand select" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand select" -l assume-complete -d 'Take sources that cannot tell whether calls were lost as complete'
complete -c forestctl -n "__fish_forestctl_using_subcommand select" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand select" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand select" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c forestctl -n "__fish_forestctl_using_subcommand select" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -s o -l output -d 'The rows directory to write' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l policy -d 'Which captured calls train' -r -f -a "returned_history\t'Calls whose generations the returned history holds'
all_captured\t'Every recorded call, abandoned retries and branches included'"
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l data-parallel -d 'Ranks that share the rows of a group' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l train-micro-batch -d 'Rows of a training microbatch' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l logprob-micro-batch -d 'Rows of a log-probability microbatch' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l advantage-clip-low -d 'Least advantage of an owner that trains' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l advantage-clip-high -d 'Greatest advantage of an owner that trains' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l masked-reward-policy -d 'Whose rewards enter the baseline' -r -f -a "exclude\t'Only owners that train'
include\t'Also owners that a learner filter masks (overlong, sequence error)'
include_all\t'Every slot of the group'"
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l force -d 'Replace existing rows'
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l assume-complete -d 'Take sources that cannot tell whether calls were lost as complete'
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l mask-errors -d 'Write rows although evidence is wrong; the rollouts concerned are masked'
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l sequence-packing -d 'Rows will be packed into bins: only the ranks must divide their number'
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l no-leave-one-out -d 'Keep the owner\'s own reward in its baseline'
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l no-normalize -d 'Do not divide by the standard deviation of the rewards'
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l overlong-filtering -d 'Mask rollouts of which a selected generation stopped at a length limit'
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l model -d 'Hugging Face model directory: config.json and safetensors' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -s o -l output -d 'The checkpoint directory to write' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l reference-model -d 'Model of the KL term' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l prev-model -d 'Model that previous log-probabilities are taken from, instead of --model' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l kl-coef -d 'Coefficient of the KL term [default: 0.01 with --reference-model, else 0]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l lr -d 'Learning rate' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l weight-decay -d 'Decoupled weight decay of every parameter' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l max-grad-norm -d 'Scale gradients down to this global norm' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l betas -d 'Decay of the first and second moment' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l dtype -d 'Number format of computation and checkpoint [default: the model\'s own]' -r -f -a "float64\t'Everything in float64, also norms, rotary tables and softmax'
float32\t'Everything in float32'
bfloat16\t'Products in bfloat16; norms, softmax, main weights and optimizer in float32'"
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l device -d 'cpu, cuda, or cuda:INDEX' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l seed -d 'Seed of libtorch\'s generator; a step draws nothing from it' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l config -d 'NeMo-RL YAML whose sections loss_fn and grpo are read; flags come first' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l dump-gradients -d 'Also write the gradients before clipping, as safetensors' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l dump-logprobs -d 'Also write the rows\' log-probabilities before the update, as safetensors' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l force -d 'Replace existing outputs'
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_using_subcommand completions" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_using_subcommand completions" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_using_subcommand completions" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand completions" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand completions" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand completions" -s h -l help -d 'Print help'
complete -c forestctl -n "__fish_forestctl_using_subcommand completions" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_using_subcommand man" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_using_subcommand man" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_using_subcommand man" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand man" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand man" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand man" -s h -l help -d 'Print help'
complete -c forestctl -n "__fish_forestctl_using_subcommand man" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_using_subcommand generated" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_using_subcommand generated" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_using_subcommand generated" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand generated" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand generated" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand generated" -s h -l help -d 'Print help'
complete -c forestctl -n "__fish_forestctl_using_subcommand generated" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select build-rows step completions man generated help" -f -a "ingest" -d 'Read captures into an archive'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select build-rows step completions man generated help" -f -a "validate" -d 'Prove an archive: digests, lengths, lineage, completeness'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select build-rows step completions man generated help" -f -a "select" -d 'Choose the calls that train, with a verdict and reason for every rollout'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select build-rows step completions man generated help" -f -a "build-rows" -d 'Turn selected calls into training rows, with masks, padding, and advantages'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select build-rows step completions man generated help" -f -a "step" -d 'Run one GRPO optimizer step on rows'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select build-rows step completions man generated help" -f -a "completions" -d 'Print shell completions'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select build-rows step completions man generated help" -f -a "man" -d 'Print a man page'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select build-rows step completions man generated help" -f -a "generated" -d 'Write the generated files of the repository'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select build-rows step completions man generated help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
