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
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "inspect" -d 'Browse rollouts, their calls and tokens on a full screen'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "ls" -d 'List rollouts with verdict, reward, advantage, and tokens'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "show" -d 'Show one rollout as a tree: calls, roots, branches, rows, and findings'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "why" -d 'Say why a rollout, a call, or a token trains or does not, by evidence and rule'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "diff" -d 'Compare two policies on one archive, or two archives, rollout by rollout'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "build-rows" -d 'Turn selected calls into training rows, with masks, padding, and advantages'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "du" -d 'How often rows repeat their tokens, and what a step gains by computing each prefix once'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "report" -d 'Write one page about an archive: data flow, calls to rows, compaction, batch size, distributions'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "cleanup-plan" -d 'List staging keys that may be removed, and those that must stay'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "config" -d 'Check a NeMo-RL configuration for forest training, or show what it settles'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "doctor" -d 'Tell what is installed, what is missing, and the command that mends it'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "step" -d 'Run GRPO optimizer steps on rows'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "audit-logprobs" -d 'Compare log-probabilities: captured, under each call\'s own context, and in rows'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "completions" -d 'Print shell completions'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "man" -d 'Print a man page'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "generated" -d 'Write the generated files of the repository'
complete -c forestctl -n "__fish_forestctl_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c forestctl -n "__fish_forestctl_using_subcommand ingest" -l files-from -d 'Read more sources from this file, one per line; `-` is stdin' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand ingest" -s o -l output -d 'The archive to write or to add to' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand ingest" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_using_subcommand ingest" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_using_subcommand ingest" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand ingest" -l force -d 'Replace an existing archive as a whole'
complete -c forestctl -n "__fish_forestctl_using_subcommand ingest" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand ingest" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand ingest" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c forestctl -n "__fish_forestctl_using_subcommand ingest" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -l cumulative -d 'Calls whose cumulative hash is computed again; all is quadratic in the length of a chain' -r -f -a "endpoints\t'Scored calls and calls without a child'
all\t'Every call'"
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -l read-data -d 'Read tensor data, too: all, one share of several (2/5), or a percentage (2.5%). Digests of rollouts whose calls are signed are computed again, too' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -l policy -d 'Select by this policy too, and report why rollouts are masked and groups dropped' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -l selector-python -d 'Python interpreter of a module:function policy' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -l selector-timeout -d 'Seconds that a selector may take for one rollout' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -l config -d 'NeMo-RL YAML whose selection policy is taken, unless --policy says another' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -l report -d 'Report to another tool too: junit=FILE, sarif=FILE, github, or github=FILE' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -l fail-on -d 'Least severity of a finding that makes the exit code 1' -r -f -a "never\t'No finding does'
error\t'Wrong evidence only'
warning\t'Whatever masks, too'"
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -l deny -d 'Make findings of these codes errors; `warnings` names all warnings' -r -f -a "malformed_json\t''
malformed_record\t''
malformed_receipt\t''
malformed_media\t''
malformed_rollout\t''
line_too_long\t''
unreadable_source\t''
quarantine_full\t''
superseded_attempt\t''
malformed_sidecar\t''
orphan_tensor\t''
token_id_out_of_range\t''
conflicting_record\t''
unknown_scope\t''
conflicting_store_entry\t''
torn_store_tail\t''
store_unreadable\t''
unresolved_parent\t''
parent_digest_mismatch\t''
unsupported_schema\t''
unsupported_digest\t''
unsupported_extras_digest\t''
unsupported_fingerprint\t''
unsupported_replay\t''
unsupported_recovery\t''
rollout_failed\t''
capture_poisoned\t''
empty_manifest\t''
duplicate_manifest_row\t''
duplicate_staging_key\t''
row_count_mismatch\t''
duplicate_snapshot\t''
snapshot_identity_mismatch\t''
snapshot_order_mismatch\t''
wrong_rollout\t''
wrong_model_call_id\t''
wrong_parent_call_id\t''
wrong_mode\t''
wrong_prev_len\t''
wrong_delta_len\t''
wrong_cum_len\t''
wrong_weight_version\t''
wrong_digest\t''
wrong_extras_digest\t''
wrong_chain_hash\t''
wrong_cumulative_hash\t''
wrong_schema_version\t''
wrong_digest_version\t''
wrong_extras_digest_version\t''
invalid_snapshot\t''
corrupt_digest\t''
corrupt_extras_digest\t''
missing_parent\t''
parent_length_mismatch\t''
lineage_cycle\t''
missing_terminal\t''
chain_hash_mismatch\t''
invalid_mask_order\t''
empty_generation\t''
cumulative_hash_mismatch\t''
missing_receipt\t''
receipt_reward_mismatch\t''
uncommitted_record\t''
unaccounted_call\t''
capture_pending\t''
capture_failed\t''
capture_cancelled\t''
completion_failed\t''
completeness_unknown\t''
capture_incomplete\t''
completion_unrecorded\t''
clamped_logprob\t''
positive_logprob\t''
entry_digest_mismatch\t''
media_flag_mismatch\t''
media_metadata_mismatch\t''
invalid_media_geometry\t''
media_span_order\t''
media_span_outside_prompt\t''
media_token_mismatch\t''
media_uncovered\t''
media_not_new\t''
media_retained_changed\t''
media_prefix_mismatch\t''
missing_media_tensor\t''
unexpected_media_tensor\t''
invalid_media_tensor\t''
media_count_mismatch\t''
media_size_mismatch\t''
media_frame_mismatch\t''
media_size_indivisible\t''
media_patch_mismatch\t''
media_merge_mismatch\t''
media_frames_mixed\t''
media_dtype_mismatch\t''
media_patch_size_mismatch\t''
selection_not_closed\t''
failed_selected_call\t''
missing_reward\t''
missing_logprob\t''
missing_evidence\t''
ambiguous_evidence\t''
contradictory_evidence\t''
duplicated_evidence\t''
unmatched_evidence\t''
partial_generation\t''
unsupported_item\t''
several_sessions\t''
terminal_not_selected\t''
terminal_mismatch\t''
unattributed_terminal\t''
missing_completion\t''
selector_failed\t''
selector_timeout\t''
invalid_selection\t''
no_verified_layout\t''
too_few_valid_rollouts\t''
inconsistent_group\t''
incomplete_group\t''
route_shape_mismatch\t''
invalid_route\t''
overlong\t''
seq_logprob_error\t''
environment_masked\t''
corrupt_file\t''
missing_tensor\t''
corrupt_tensor\t''
inconsistent_archive\t''
unlisted_file\t''
unknown_code\t''
row_span_mismatch\t''
row_context_mismatch\t''
captured_logprob_mismatch\t''
warnings\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -l warn -d 'Make findings of these codes warnings' -r -f -a "malformed_json\t''
malformed_record\t''
malformed_receipt\t''
malformed_media\t''
malformed_rollout\t''
line_too_long\t''
unreadable_source\t''
quarantine_full\t''
superseded_attempt\t''
malformed_sidecar\t''
orphan_tensor\t''
token_id_out_of_range\t''
conflicting_record\t''
unknown_scope\t''
conflicting_store_entry\t''
torn_store_tail\t''
store_unreadable\t''
unresolved_parent\t''
parent_digest_mismatch\t''
unsupported_schema\t''
unsupported_digest\t''
unsupported_extras_digest\t''
unsupported_fingerprint\t''
unsupported_replay\t''
unsupported_recovery\t''
rollout_failed\t''
capture_poisoned\t''
empty_manifest\t''
duplicate_manifest_row\t''
duplicate_staging_key\t''
row_count_mismatch\t''
duplicate_snapshot\t''
snapshot_identity_mismatch\t''
snapshot_order_mismatch\t''
wrong_rollout\t''
wrong_model_call_id\t''
wrong_parent_call_id\t''
wrong_mode\t''
wrong_prev_len\t''
wrong_delta_len\t''
wrong_cum_len\t''
wrong_weight_version\t''
wrong_digest\t''
wrong_extras_digest\t''
wrong_chain_hash\t''
wrong_cumulative_hash\t''
wrong_schema_version\t''
wrong_digest_version\t''
wrong_extras_digest_version\t''
invalid_snapshot\t''
corrupt_digest\t''
corrupt_extras_digest\t''
missing_parent\t''
parent_length_mismatch\t''
lineage_cycle\t''
missing_terminal\t''
chain_hash_mismatch\t''
invalid_mask_order\t''
empty_generation\t''
cumulative_hash_mismatch\t''
missing_receipt\t''
receipt_reward_mismatch\t''
uncommitted_record\t''
unaccounted_call\t''
capture_pending\t''
capture_failed\t''
capture_cancelled\t''
completion_failed\t''
completeness_unknown\t''
capture_incomplete\t''
completion_unrecorded\t''
clamped_logprob\t''
positive_logprob\t''
entry_digest_mismatch\t''
media_flag_mismatch\t''
media_metadata_mismatch\t''
invalid_media_geometry\t''
media_span_order\t''
media_span_outside_prompt\t''
media_token_mismatch\t''
media_uncovered\t''
media_not_new\t''
media_retained_changed\t''
media_prefix_mismatch\t''
missing_media_tensor\t''
unexpected_media_tensor\t''
invalid_media_tensor\t''
media_count_mismatch\t''
media_size_mismatch\t''
media_frame_mismatch\t''
media_size_indivisible\t''
media_patch_mismatch\t''
media_merge_mismatch\t''
media_frames_mixed\t''
media_dtype_mismatch\t''
media_patch_size_mismatch\t''
selection_not_closed\t''
failed_selected_call\t''
missing_reward\t''
missing_logprob\t''
missing_evidence\t''
ambiguous_evidence\t''
contradictory_evidence\t''
duplicated_evidence\t''
unmatched_evidence\t''
partial_generation\t''
unsupported_item\t''
several_sessions\t''
terminal_not_selected\t''
terminal_mismatch\t''
unattributed_terminal\t''
missing_completion\t''
selector_failed\t''
selector_timeout\t''
invalid_selection\t''
no_verified_layout\t''
too_few_valid_rollouts\t''
inconsistent_group\t''
incomplete_group\t''
route_shape_mismatch\t''
invalid_route\t''
overlong\t''
seq_logprob_error\t''
environment_masked\t''
corrupt_file\t''
missing_tensor\t''
corrupt_tensor\t''
inconsistent_archive\t''
unlisted_file\t''
unknown_code\t''
row_span_mismatch\t''
row_context_mismatch\t''
captured_logprob_mismatch\t''
warnings\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -l allow -d 'Leave findings of these codes out; how many they were is still said' -r -f -a "malformed_json\t''
malformed_record\t''
malformed_receipt\t''
malformed_media\t''
malformed_rollout\t''
line_too_long\t''
unreadable_source\t''
quarantine_full\t''
superseded_attempt\t''
malformed_sidecar\t''
orphan_tensor\t''
token_id_out_of_range\t''
conflicting_record\t''
unknown_scope\t''
conflicting_store_entry\t''
torn_store_tail\t''
store_unreadable\t''
unresolved_parent\t''
parent_digest_mismatch\t''
unsupported_schema\t''
unsupported_digest\t''
unsupported_extras_digest\t''
unsupported_fingerprint\t''
unsupported_replay\t''
unsupported_recovery\t''
rollout_failed\t''
capture_poisoned\t''
empty_manifest\t''
duplicate_manifest_row\t''
duplicate_staging_key\t''
row_count_mismatch\t''
duplicate_snapshot\t''
snapshot_identity_mismatch\t''
snapshot_order_mismatch\t''
wrong_rollout\t''
wrong_model_call_id\t''
wrong_parent_call_id\t''
wrong_mode\t''
wrong_prev_len\t''
wrong_delta_len\t''
wrong_cum_len\t''
wrong_weight_version\t''
wrong_digest\t''
wrong_extras_digest\t''
wrong_chain_hash\t''
wrong_cumulative_hash\t''
wrong_schema_version\t''
wrong_digest_version\t''
wrong_extras_digest_version\t''
invalid_snapshot\t''
corrupt_digest\t''
corrupt_extras_digest\t''
missing_parent\t''
parent_length_mismatch\t''
lineage_cycle\t''
missing_terminal\t''
chain_hash_mismatch\t''
invalid_mask_order\t''
empty_generation\t''
cumulative_hash_mismatch\t''
missing_receipt\t''
receipt_reward_mismatch\t''
uncommitted_record\t''
unaccounted_call\t''
capture_pending\t''
capture_failed\t''
capture_cancelled\t''
completion_failed\t''
completeness_unknown\t''
capture_incomplete\t''
completion_unrecorded\t''
clamped_logprob\t''
positive_logprob\t''
entry_digest_mismatch\t''
media_flag_mismatch\t''
media_metadata_mismatch\t''
invalid_media_geometry\t''
media_span_order\t''
media_span_outside_prompt\t''
media_token_mismatch\t''
media_uncovered\t''
media_not_new\t''
media_retained_changed\t''
media_prefix_mismatch\t''
missing_media_tensor\t''
unexpected_media_tensor\t''
invalid_media_tensor\t''
media_count_mismatch\t''
media_size_mismatch\t''
media_frame_mismatch\t''
media_size_indivisible\t''
media_patch_mismatch\t''
media_merge_mismatch\t''
media_frames_mixed\t''
media_dtype_mismatch\t''
media_patch_size_mismatch\t''
selection_not_closed\t''
failed_selected_call\t''
missing_reward\t''
missing_logprob\t''
missing_evidence\t''
ambiguous_evidence\t''
contradictory_evidence\t''
duplicated_evidence\t''
unmatched_evidence\t''
partial_generation\t''
unsupported_item\t''
several_sessions\t''
terminal_not_selected\t''
terminal_mismatch\t''
unattributed_terminal\t''
missing_completion\t''
selector_failed\t''
selector_timeout\t''
invalid_selection\t''
no_verified_layout\t''
too_few_valid_rollouts\t''
inconsistent_group\t''
incomplete_group\t''
route_shape_mismatch\t''
invalid_route\t''
overlong\t''
seq_logprob_error\t''
environment_masked\t''
corrupt_file\t''
missing_tensor\t''
corrupt_tensor\t''
inconsistent_archive\t''
unlisted_file\t''
unknown_code\t''
row_span_mismatch\t''
row_context_mismatch\t''
captured_logprob_mismatch\t''
warnings\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -l assume-complete -d 'Take sources that cannot tell whether calls were lost as complete'
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c forestctl -n "__fish_forestctl_using_subcommand validate" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_using_subcommand select" -l config -d 'NeMo-RL YAML whose sections token_capture, policy, grpo, loss_fn and async_rl are read' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand select" -l policy -d 'Which captured calls train [default: returned_history]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand select" -l selector-python -d 'Python interpreter of a module:function policy' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand select" -l selector-timeout -d 'Seconds that a selector may take for one rollout' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand select" -l min-valid-fraction -d 'Drop prompt groups of which a smaller share of rollouts has a verified layout' -r
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
complete -c forestctl -n "__fish_forestctl_using_subcommand inspect" -l svg -d 'Write the picture of the rollout as SVG, and nothing else; - is stdout' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand inspect" -l tokenizer -d 'tokenizer.json of the model: shows text beside token ids' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand inspect" -l config -d 'NeMo-RL YAML whose sections token_capture, policy, grpo, loss_fn and async_rl are read' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand inspect" -l policy -d 'Which captured calls train [default: returned_history]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand inspect" -l selector-python -d 'Python interpreter of a module:function policy' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand inspect" -l selector-timeout -d 'Seconds that a selector may take for one rollout' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand inspect" -l min-valid-fraction -d 'Drop prompt groups of which a smaller share of rollouts has a verified layout' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand inspect" -l no-leave-one-out -d 'Keep the owner\'s own reward in its baseline' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand inspect" -l no-normalize -d 'Do not divide by the standard deviation of the rewards' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand inspect" -l advantage-clip-low -d 'Least advantage of an owner that trains' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand inspect" -l advantage-clip-high -d 'Greatest advantage of an owner that trains' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand inspect" -l overlong-filtering -d 'Mask rollouts of which a selected generation stopped at a length limit' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand inspect" -l masked-reward-policy -d 'Whose rewards enter the baseline [default: exclude]' -r -f -a "exclude\t'Only owners that train'
include\t'Also owners that a learner filter masks (overlong, sequence error)'
include_all\t'Every slot of the group'"
complete -c forestctl -n "__fish_forestctl_using_subcommand inspect" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_using_subcommand inspect" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_using_subcommand inspect" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand inspect" -l force -d 'Replace an existing file'
complete -c forestctl -n "__fish_forestctl_using_subcommand inspect" -l assume-complete -d 'Take sources that cannot tell whether calls were lost as complete'
complete -c forestctl -n "__fish_forestctl_using_subcommand inspect" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand inspect" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand inspect" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c forestctl -n "__fish_forestctl_using_subcommand inspect" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -l group -d 'Only this prompt group; may be given several times' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -l verdict -d 'Only these: valid, masked, or dropped with their group' -r -f -a "valid\t'Its rows carry loss'
masked\t'Kept, without loss'
dropped\t'Left out with its whole prompt group'"
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -l reason -d 'Only those that carry no loss for this reason, among others; docs/codes.md lists them' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -l finding -d 'Only those with a finding of this code, whether it masks or not' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -l min-reward -d 'Only those with at least this reward' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -l max-reward -d 'Only those with at most this reward' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -l source -d 'Only this form of capture: staged, gym_store, or inline_rollouts' -r -f -a "staged\t'Staged records with receipts (schema 2 or 3)'
gym_store\t'Gym\'s file store of `TokenEntry` lines'
inline_rollouts\t'Gym rollouts JSONL with inline token arrays'"
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -l sort -d 'Sort by id, reward, tokens, calls, or rows; numbers from the largest down' -r -f -a "id\t'Group, then slot'
reward\t'Reward, the highest first; rollouts without one last'
tokens\t'Captured tokens, most first'
calls\t'Captured calls, most first'
rows\t'Physical rows, most first'"
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -l config -d 'NeMo-RL YAML whose sections token_capture, policy, grpo, loss_fn and async_rl are read' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -l policy -d 'Which captured calls train [default: returned_history]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -l selector-python -d 'Python interpreter of a module:function policy' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -l selector-timeout -d 'Seconds that a selector may take for one rollout' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -l min-valid-fraction -d 'Drop prompt groups of which a smaller share of rollouts has a verified layout' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -l no-leave-one-out -d 'Keep the owner\'s own reward in its baseline' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -l no-normalize -d 'Do not divide by the standard deviation of the rewards' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -l advantage-clip-low -d 'Least advantage of an owner that trains' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -l advantage-clip-high -d 'Greatest advantage of an owner that trains' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -l overlong-filtering -d 'Mask rollouts of which a selected generation stopped at a length limit' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -l masked-reward-policy -d 'Whose rewards enter the baseline [default: exclude]' -r -f -a "exclude\t'Only owners that train'
include\t'Also owners that a learner filter masks (overlong, sequence error)'
include_all\t'Every slot of the group'"
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -l reverse -d 'Turn the order around'
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -l assume-complete -d 'Take sources that cannot tell whether calls were lost as complete'
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c forestctl -n "__fish_forestctl_using_subcommand ls" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_using_subcommand show" -l tokenizer -d 'tokenizer.json of the model: shows text beside token ids' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand show" -l config -d 'NeMo-RL YAML whose sections token_capture, policy, grpo, loss_fn and async_rl are read' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand show" -l policy -d 'Which captured calls train [default: returned_history]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand show" -l selector-python -d 'Python interpreter of a module:function policy' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand show" -l selector-timeout -d 'Seconds that a selector may take for one rollout' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand show" -l min-valid-fraction -d 'Drop prompt groups of which a smaller share of rollouts has a verified layout' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand show" -l no-leave-one-out -d 'Keep the owner\'s own reward in its baseline' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand show" -l no-normalize -d 'Do not divide by the standard deviation of the rewards' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand show" -l advantage-clip-low -d 'Least advantage of an owner that trains' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand show" -l advantage-clip-high -d 'Greatest advantage of an owner that trains' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand show" -l overlong-filtering -d 'Mask rollouts of which a selected generation stopped at a length limit' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand show" -l masked-reward-policy -d 'Whose rewards enter the baseline [default: exclude]' -r -f -a "exclude\t'Only owners that train'
include\t'Also owners that a learner filter masks (overlong, sequence error)'
include_all\t'Every slot of the group'"
complete -c forestctl -n "__fish_forestctl_using_subcommand show" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_using_subcommand show" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_using_subcommand show" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand show" -l assume-complete -d 'Take sources that cannot tell whether calls were lost as complete'
complete -c forestctl -n "__fish_forestctl_using_subcommand show" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand show" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c forestctl -n "__fish_forestctl_using_subcommand show" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_using_subcommand why" -l tokenizer -d 'tokenizer.json of the model: shows text beside token ids' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand why" -l config -d 'NeMo-RL YAML whose sections token_capture, policy, grpo, loss_fn and async_rl are read' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand why" -l policy -d 'Which captured calls train [default: returned_history]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand why" -l selector-python -d 'Python interpreter of a module:function policy' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand why" -l selector-timeout -d 'Seconds that a selector may take for one rollout' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand why" -l min-valid-fraction -d 'Drop prompt groups of which a smaller share of rollouts has a verified layout' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand why" -l no-leave-one-out -d 'Keep the owner\'s own reward in its baseline' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand why" -l no-normalize -d 'Do not divide by the standard deviation of the rewards' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand why" -l advantage-clip-low -d 'Least advantage of an owner that trains' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand why" -l advantage-clip-high -d 'Greatest advantage of an owner that trains' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand why" -l overlong-filtering -d 'Mask rollouts of which a selected generation stopped at a length limit' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand why" -l masked-reward-policy -d 'Whose rewards enter the baseline [default: exclude]' -r -f -a "exclude\t'Only owners that train'
include\t'Also owners that a learner filter masks (overlong, sequence error)'
include_all\t'Every slot of the group'"
complete -c forestctl -n "__fish_forestctl_using_subcommand why" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_using_subcommand why" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_using_subcommand why" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand why" -l assume-complete -d 'Take sources that cannot tell whether calls were lost as complete'
complete -c forestctl -n "__fish_forestctl_using_subcommand why" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand why" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand why" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c forestctl -n "__fish_forestctl_using_subcommand why" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_using_subcommand diff" -l policy -d 'Which captured calls train, as of select; given twice, once for each side' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand diff" -l selector-python -d 'Python interpreter of a module:function policy' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand diff" -l selector-timeout -d 'Seconds that a selector may take for one rollout' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand diff" -l min-valid-fraction -d 'Drop prompt groups of which a smaller share of rollouts has a verified layout' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand diff" -l config -d 'NeMo-RL YAML whose sections token_capture, policy, grpo, loss_fn and async_rl are read' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand diff" -l no-leave-one-out -d 'Keep the owner\'s own reward in its baseline' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand diff" -l no-normalize -d 'Do not divide by the standard deviation of the rewards' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand diff" -l advantage-clip-low -d 'Least advantage of an owner that trains' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand diff" -l advantage-clip-high -d 'Greatest advantage of an owner that trains' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand diff" -l overlong-filtering -d 'Mask rollouts of which a selected generation stopped at a length limit' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand diff" -l masked-reward-policy -d 'Whose rewards enter the baseline [default: exclude]' -r -f -a "exclude\t'Only owners that train'
include\t'Also owners that a learner filter masks (overlong, sequence error)'
include_all\t'Every slot of the group'"
complete -c forestctl -n "__fish_forestctl_using_subcommand diff" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_using_subcommand diff" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_using_subcommand diff" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand diff" -l assume-complete -d 'Take sources that cannot tell whether calls were lost as complete'
complete -c forestctl -n "__fish_forestctl_using_subcommand diff" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand diff" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand diff" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c forestctl -n "__fish_forestctl_using_subcommand diff" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -s o -l output -d 'The rows directory to write' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l config -d 'NeMo-RL YAML whose sections token_capture, policy, grpo, loss_fn and async_rl are read' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l policy -d 'Which captured calls train [default: returned_history]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l selector-python -d 'Python interpreter of a module:function policy' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l selector-timeout -d 'Seconds that a selector may take for one rollout' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l min-valid-fraction -d 'Drop prompt groups of which a smaller share of rollouts has a verified layout' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l data-parallel -d 'Ranks that share the rows of a group' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l train-micro-batch -d 'Rows of a training microbatch [default: 1]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l logprob-micro-batch -d 'Rows of a log-probability microbatch [default: 1]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l sequence-packing -d 'Rows will be packed into bins: only the ranks must divide their number' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l min-step-batch-fraction -d 'Stop unless at least this share of the step\'s prompt groups is kept' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l prompts-per-step -d 'Prompt groups of a step; without it, those in the archive' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l max-skipped-prompts -d 'Stop when more prompt groups than this are dropped' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l max-consecutive-dropped-prompts -d 'Stop when more prompt groups than this are dropped one after the other, in order of ids' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l pack-tokens -d 'Pack now: tokens that a bin holds at most; rows.json lists the bins' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l packer -d 'How rows are assigned to bins [default: modified_first_fit_decreasing]' -r -f -a "concatenative\t'In row order; a row that does not fit begins the next bin'
first_fit_decreasing\t'Longest first, each into the first bin with room'
first_fit_shuffle\t'In an order shuffled by the seed, each into the first bin with room'
modified_first_fit_decreasing\t'Long rows one by one, completed by shorter ones; what is left over longest first'"
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l row-pad-multiple -d 'The length of every row is rounded up to a multiple of this [default: 1]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l microbatch-order -d 'Order of the bins of a rank [default: packer]' -r -f -a "packer\t'As the packer made them'
largest_first\t'Most tokens first'"
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l pack-seed -d 'Seed of first_fit_shuffle, as of Python\'s random.seed' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l no-leave-one-out -d 'Keep the owner\'s own reward in its baseline' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l no-normalize -d 'Do not divide by the standard deviation of the rewards' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l advantage-clip-low -d 'Least advantage of an owner that trains' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l advantage-clip-high -d 'Greatest advantage of an owner that trains' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l overlong-filtering -d 'Mask rollouts of which a selected generation stopped at a length limit' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l masked-reward-policy -d 'Whose rewards enter the baseline [default: exclude]' -r -f -a "exclude\t'Only owners that train'
include\t'Also owners that a learner filter masks (overlong, sequence error)'
include_all\t'Every slot of the group'"
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l seq-logprob-error-threshold -d 'Mask rollouts whose pooled error of captured log-probabilities exceeds this; needs --prev-logprobs' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l shard -d 'Write one of several shards, as 2/4: whole prompt groups, about as many tokens in each' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l prev-logprobs -d 'Log-probabilities under the previous policy, as `step --dump-logprobs` writes them' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -l gradient-weights -d 'Write each rollout\'s share of the gradient, by token, row, and rollout means, as CSV' -r -F
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
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c forestctl -n "__fish_forestctl_using_subcommand build-rows" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_using_subcommand du" -l by -d 'What to count by; the total comes first, then what gains the most seconds' -r -f -a "archive\t'Everything together'
group\t'Every prompt group'
rollout\t'Every rollout, which shares within itself alone'"
complete -c forestctl -n "__fish_forestctl_using_subcommand du" -l model -d 'A model whose step is predicted: a name, or a folder with config.json; repeatable [default: qwen3-0.6b, qwen3-1.7b, qwen3-4b, qwen3-8b]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand du" -l pack-tokens -d 'Tokens that are computed at once; rows that share more than fits are split, and each pack computes what it borrows' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand du" -l ranks -d 'Show how the packs would be balanced over this many ranks' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand du" -l config -d 'NeMo-RL YAML whose sections token_capture, policy, grpo, loss_fn and async_rl are read' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand du" -l policy -d 'Which captured calls train [default: returned_history]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand du" -l selector-python -d 'Python interpreter of a module:function policy' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand du" -l selector-timeout -d 'Seconds that a selector may take for one rollout' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand du" -l min-valid-fraction -d 'Drop prompt groups of which a smaller share of rollouts has a verified layout' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand du" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_using_subcommand du" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_using_subcommand du" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand du" -l assume-complete -d 'Take sources that cannot tell whether calls were lost as complete'
complete -c forestctl -n "__fish_forestctl_using_subcommand du" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand du" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand du" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c forestctl -n "__fish_forestctl_using_subcommand du" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -s o -l output -d 'The page to write; - is stdout' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l rollout -d 'Draw this rollout: its id, or how it begins' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l tokenizer -d 'tokenizer.json of the model: shows text beside token ids' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l config -d 'NeMo-RL YAML whose sections token_capture, policy, grpo, loss_fn and async_rl are read' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l policy -d 'Which captured calls train [default: returned_history]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l selector-python -d 'Python interpreter of a module:function policy' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l selector-timeout -d 'Seconds that a selector may take for one rollout' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l min-valid-fraction -d 'Drop prompt groups of which a smaller share of rollouts has a verified layout' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l data-parallel -d 'Ranks that share the rows of a group' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l train-micro-batch -d 'Rows of a training microbatch [default: 1]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l logprob-micro-batch -d 'Rows of a log-probability microbatch [default: 1]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l sequence-packing -d 'Rows will be packed into bins: only the ranks must divide their number' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l min-step-batch-fraction -d 'Stop unless at least this share of the step\'s prompt groups is kept' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l prompts-per-step -d 'Prompt groups of a step; without it, those in the archive' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l max-skipped-prompts -d 'Stop when more prompt groups than this are dropped' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l max-consecutive-dropped-prompts -d 'Stop when more prompt groups than this are dropped one after the other, in order of ids' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l pack-tokens -d 'Pack now: tokens that a bin holds at most; rows.json lists the bins' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l packer -d 'How rows are assigned to bins [default: modified_first_fit_decreasing]' -r -f -a "concatenative\t'In row order; a row that does not fit begins the next bin'
first_fit_decreasing\t'Longest first, each into the first bin with room'
first_fit_shuffle\t'In an order shuffled by the seed, each into the first bin with room'
modified_first_fit_decreasing\t'Long rows one by one, completed by shorter ones; what is left over longest first'"
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l row-pad-multiple -d 'The length of every row is rounded up to a multiple of this [default: 1]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l microbatch-order -d 'Order of the bins of a rank [default: packer]' -r -f -a "packer\t'As the packer made them'
largest_first\t'Most tokens first'"
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l pack-seed -d 'Seed of first_fit_shuffle, as of Python\'s random.seed' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l no-leave-one-out -d 'Keep the owner\'s own reward in its baseline' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l no-normalize -d 'Do not divide by the standard deviation of the rewards' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l advantage-clip-low -d 'Least advantage of an owner that trains' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l advantage-clip-high -d 'Greatest advantage of an owner that trains' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l overlong-filtering -d 'Mask rollouts of which a selected generation stopped at a length limit' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l masked-reward-policy -d 'Whose rewards enter the baseline [default: exclude]' -r -f -a "exclude\t'Only owners that train'
include\t'Also owners that a learner filter masks (overlong, sequence error)'
include_all\t'Every slot of the group'"
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l seq-logprob-error-threshold -d 'Mask rollouts whose pooled error of captured log-probabilities exceeds this; needs --prev-logprobs' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l prev-logprobs -d 'Log-probabilities under the previous policy, as `step --dump-logprobs` writes them' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l force -d 'Replace an existing file'
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -l assume-complete -d 'Take sources that cannot tell whether calls were lost as complete'
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c forestctl -n "__fish_forestctl_using_subcommand report" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_using_subcommand cleanup-plan" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_using_subcommand cleanup-plan" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_using_subcommand cleanup-plan" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand cleanup-plan" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand cleanup-plan" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand cleanup-plan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c forestctl -n "__fish_forestctl_using_subcommand cleanup-plan" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and not __fish_seen_subcommand_from check show help" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and not __fish_seen_subcommand_from check show help" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and not __fish_seen_subcommand_from check show help" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and not __fish_seen_subcommand_from check show help" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and not __fish_seen_subcommand_from check show help" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and not __fish_seen_subcommand_from check show help" -s h -l help -d 'Print help'
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and not __fish_seen_subcommand_from check show help" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and not __fish_seen_subcommand_from check show help" -f -a "check" -d 'Report everything that keeps a file from forest training'
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and not __fish_seen_subcommand_from check show help" -f -a "show" -d 'Print every setting of build-rows, and where its value comes from'
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and not __fish_seen_subcommand_from check show help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from check" -l selector-python -d 'Python interpreter of a module:function policy' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from check" -l selector-timeout -d 'Seconds that a selector may take for one rollout' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from check" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from check" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from check" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from check" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from check" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from check" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l policy -d 'Which captured calls train [default: returned_history]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l selector-python -d 'Python interpreter of a module:function policy' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l selector-timeout -d 'Seconds that a selector may take for one rollout' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l min-valid-fraction -d 'Drop prompt groups of which a smaller share of rollouts has a verified layout' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l data-parallel -d 'Ranks that share the rows of a group' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l train-micro-batch -d 'Rows of a training microbatch [default: 1]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l logprob-micro-batch -d 'Rows of a log-probability microbatch [default: 1]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l sequence-packing -d 'Rows will be packed into bins: only the ranks must divide their number' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l min-step-batch-fraction -d 'Stop unless at least this share of the step\'s prompt groups is kept' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l prompts-per-step -d 'Prompt groups of a step; without it, those in the archive' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l max-skipped-prompts -d 'Stop when more prompt groups than this are dropped' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l max-consecutive-dropped-prompts -d 'Stop when more prompt groups than this are dropped one after the other, in order of ids' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l pack-tokens -d 'Pack now: tokens that a bin holds at most; rows.json lists the bins' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l packer -d 'How rows are assigned to bins [default: modified_first_fit_decreasing]' -r -f -a "concatenative\t'In row order; a row that does not fit begins the next bin'
first_fit_decreasing\t'Longest first, each into the first bin with room'
first_fit_shuffle\t'In an order shuffled by the seed, each into the first bin with room'
modified_first_fit_decreasing\t'Long rows one by one, completed by shorter ones; what is left over longest first'"
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l row-pad-multiple -d 'The length of every row is rounded up to a multiple of this [default: 1]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l microbatch-order -d 'Order of the bins of a rank [default: packer]' -r -f -a "packer\t'As the packer made them'
largest_first\t'Most tokens first'"
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l pack-seed -d 'Seed of first_fit_shuffle, as of Python\'s random.seed' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l no-leave-one-out -d 'Keep the owner\'s own reward in its baseline' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l no-normalize -d 'Do not divide by the standard deviation of the rewards' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l advantage-clip-low -d 'Least advantage of an owner that trains' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l advantage-clip-high -d 'Greatest advantage of an owner that trains' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l overlong-filtering -d 'Mask rollouts of which a selected generation stopped at a length limit' -r -f -a "true\t''
false\t''"
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l masked-reward-policy -d 'Whose rewards enter the baseline [default: exclude]' -r -f -a "exclude\t'Only owners that train'
include\t'Also owners that a learner filter masks (overlong, sequence error)'
include_all\t'Every slot of the group'"
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l seq-logprob-error-threshold -d 'Mask rollouts whose pooled error of captured log-probabilities exceeds this; needs --prev-logprobs' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -l assume-complete -d 'Take sources that cannot tell whether calls were lost as complete'
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from show" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "check" -d 'Report everything that keeps a file from forest training'
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "show" -d 'Print every setting of build-rows, and where its value comes from'
complete -c forestctl -n "__fish_forestctl_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c forestctl -n "__fish_forestctl_using_subcommand doctor" -l selector-python -d 'Python interpreter of module:function policies' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand doctor" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_using_subcommand doctor" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_using_subcommand doctor" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand doctor" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand doctor" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c forestctl -n "__fish_forestctl_using_subcommand doctor" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l model -d 'Hugging Face model directory: config.json and safetensors' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l resume -d 'Checkpoint to go on from: model, optimizer state, step counter and settings' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -s o -l output -d 'The checkpoint directory to write' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l steps -d 'Passes over the rows; log-probabilities of the previous policy are taken before the first' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l minibatches -d 'Optimizer steps of a pass, each on its share of the rollouts' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l reference-model -d 'Model of the KL term' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l prev-model -d 'Model that previous log-probabilities are taken from, instead of --model' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l kl-coef -d 'Coefficient of the KL term [default: 0.01 with --reference-model, else 0]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l lr -d 'Learning rate [default: 5e-6]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l weight-decay -d 'Decoupled weight decay of every parameter [default: 0.01]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l max-grad-norm -d 'Scale gradients down to this global norm [default: 1]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l betas -d 'Decay of the first and second moment [default: 0.9,0.999]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l dtype -d 'Number format of computation and checkpoint [default: the model\'s own]' -r -f -a "float64\t'Everything in float64, also norms, rotary tables and softmax'
float32\t'Everything in float32'
bfloat16\t'Products in bfloat16; norms, softmax, main weights and optimizer in float32'"
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l device -d 'cpu, cuda, or cuda:INDEX' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l seed -d 'Seed of libtorch\'s generator; a step draws nothing from it' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l pack-tokens -d 'Tokens of rows that are computed at once; 0 computes row by row [default: 16384]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l share-prefixes -d 'Compute tokens that rows share from their beginning on once [default: auto]' -r -f -a "auto\t'When it saves time'
always\t'Always'
never\t'Every row by itself'"
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l attention -d 'How attention over shared tokens is computed [default: auto]' -r -f -a "auto\t'Whichever is expected to take less time'
suffix\t'One call, with the keys of every path gathered behind one another'
cascade\t'Squares and rectangles, merged by their log-sum-exp'"
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l config -d 'NeMo-RL YAML whose sections loss_fn and grpo are read; flags come first' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l dump-gradients -d 'Also write the gradients of the last optimizer step, as safetensors: before clipping, on CUDA after it' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l dump-logprobs -d 'Also write the rows\' log-probabilities before the update, as safetensors' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l dump-rows -d 'Also write metrics of every row in every optimizer step, a line of JSON each' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l tensorboard -d 'Also write every metric of every optimizer step as a TensorBoard event file in this directory' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l measure -d 'Only measure: this many steps on drawn weights of the model\'s config.json, a line of JSON each; nothing is written' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l deterministic -d 'Give the same bytes every time: deterministic kernels on CUDA, one thread on the processor'
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l profile-time -d 'Tell where training time goes on CUDA too: two events around every product and attention, and a wait after every pack'
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -l force -d 'Replace existing outputs'
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c forestctl -n "__fish_forestctl_using_subcommand step" -s V -l version -d 'Print version'
complete -c forestctl -n "__fish_forestctl_using_subcommand audit-logprobs" -l model -d 'Hugging Face model directory: config.json and safetensors' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand audit-logprobs" -l archive -d 'The archive that the rows were built from' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand audit-logprobs" -l config -d 'NeMo-RL YAML whose sections token_capture, policy, grpo, loss_fn and async_rl are read' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand audit-logprobs" -l policy -d 'Which captured calls train [default: returned_history]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand audit-logprobs" -l selector-python -d 'Python interpreter of a module:function policy' -r -F
complete -c forestctl -n "__fish_forestctl_using_subcommand audit-logprobs" -l selector-timeout -d 'Seconds that a selector may take for one rollout' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand audit-logprobs" -l min-valid-fraction -d 'Drop prompt groups of which a smaller share of rollouts has a verified layout' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand audit-logprobs" -l dtype -d 'Number format of the computation [default: the model\'s own]' -r -f -a "float64\t'Everything in float64, also norms, rotary tables and softmax'
float32\t'Everything in float32'
bfloat16\t'Products in bfloat16; norms, softmax, main weights and optimizer in float32'"
complete -c forestctl -n "__fish_forestctl_using_subcommand audit-logprobs" -l device -d 'cpu, cuda, or cuda:INDEX' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand audit-logprobs" -l pack-tokens -d 'Tokens of rows that are computed at once; 0 computes row by row' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand audit-logprobs" -l context-tolerance -d 'Own against in the row: largest difference of a token [default: 1e-9, 1e-4 or 0.25 in float64, float32 or bfloat16]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand audit-logprobs" -l tolerance -d 'Captured against own: largest difference of a token [default: 0.001, or 1 for models of 16 bits]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand audit-logprobs" -l mean-tolerance -d 'Captured against own: largest mean difference of a generation [default: 0.0001, or 0.05 for models of 16 bits]' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand audit-logprobs" -l weight-version -d 'Hold only what these weights sampled against what was captured' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand audit-logprobs" -l top -d 'Show this many disagreements, worst first' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand audit-logprobs" -l fail-on -d 'Least severity of a disagreement that makes the exit code 1; captured ones are warnings' -r -f -a "never\t'No finding does'
error\t'Wrong evidence only'
warning\t'Whatever masks, too'"
complete -c forestctl -n "__fish_forestctl_using_subcommand audit-logprobs" -l format -d 'How results are printed on stdout: human, json, jsonl, or csv' -r -f -a "human\t'For reading; not stable'
json\t'One versioned JSON document'
jsonl\t'One JSON object per item and line'
csv\t'A table with a header line'"
complete -c forestctl -n "__fish_forestctl_using_subcommand audit-logprobs" -l color -d 'When to colour: auto, always, or never; NO_COLOR is honoured' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t'Always'
never\t'Never'"
complete -c forestctl -n "__fish_forestctl_using_subcommand audit-logprobs" -s j -l jobs -d 'Worker threads; 0 means one per core. Results are the same bytes for any number' -r
complete -c forestctl -n "__fish_forestctl_using_subcommand audit-logprobs" -l assume-complete -d 'Take sources that cannot tell whether calls were lost as complete'
complete -c forestctl -n "__fish_forestctl_using_subcommand audit-logprobs" -s q -l quiet -d 'Say only what is asked for; exit codes stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand audit-logprobs" -s v -l verbose -d 'Log what is being done; twice for details'
complete -c forestctl -n "__fish_forestctl_using_subcommand audit-logprobs" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c forestctl -n "__fish_forestctl_using_subcommand audit-logprobs" -s V -l version -d 'Print version'
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
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select inspect ls show why diff build-rows du report cleanup-plan config doctor step audit-logprobs completions man generated help" -f -a "ingest" -d 'Read captures into an archive'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select inspect ls show why diff build-rows du report cleanup-plan config doctor step audit-logprobs completions man generated help" -f -a "validate" -d 'Prove an archive: digests, lengths, lineage, completeness'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select inspect ls show why diff build-rows du report cleanup-plan config doctor step audit-logprobs completions man generated help" -f -a "select" -d 'Choose the calls that train, with a verdict and reason for every rollout'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select inspect ls show why diff build-rows du report cleanup-plan config doctor step audit-logprobs completions man generated help" -f -a "inspect" -d 'Browse rollouts, their calls and tokens on a full screen'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select inspect ls show why diff build-rows du report cleanup-plan config doctor step audit-logprobs completions man generated help" -f -a "ls" -d 'List rollouts with verdict, reward, advantage, and tokens'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select inspect ls show why diff build-rows du report cleanup-plan config doctor step audit-logprobs completions man generated help" -f -a "show" -d 'Show one rollout as a tree: calls, roots, branches, rows, and findings'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select inspect ls show why diff build-rows du report cleanup-plan config doctor step audit-logprobs completions man generated help" -f -a "why" -d 'Say why a rollout, a call, or a token trains or does not, by evidence and rule'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select inspect ls show why diff build-rows du report cleanup-plan config doctor step audit-logprobs completions man generated help" -f -a "diff" -d 'Compare two policies on one archive, or two archives, rollout by rollout'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select inspect ls show why diff build-rows du report cleanup-plan config doctor step audit-logprobs completions man generated help" -f -a "build-rows" -d 'Turn selected calls into training rows, with masks, padding, and advantages'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select inspect ls show why diff build-rows du report cleanup-plan config doctor step audit-logprobs completions man generated help" -f -a "du" -d 'How often rows repeat their tokens, and what a step gains by computing each prefix once'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select inspect ls show why diff build-rows du report cleanup-plan config doctor step audit-logprobs completions man generated help" -f -a "report" -d 'Write one page about an archive: data flow, calls to rows, compaction, batch size, distributions'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select inspect ls show why diff build-rows du report cleanup-plan config doctor step audit-logprobs completions man generated help" -f -a "cleanup-plan" -d 'List staging keys that may be removed, and those that must stay'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select inspect ls show why diff build-rows du report cleanup-plan config doctor step audit-logprobs completions man generated help" -f -a "config" -d 'Check a NeMo-RL configuration for forest training, or show what it settles'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select inspect ls show why diff build-rows du report cleanup-plan config doctor step audit-logprobs completions man generated help" -f -a "doctor" -d 'Tell what is installed, what is missing, and the command that mends it'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select inspect ls show why diff build-rows du report cleanup-plan config doctor step audit-logprobs completions man generated help" -f -a "step" -d 'Run GRPO optimizer steps on rows'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select inspect ls show why diff build-rows du report cleanup-plan config doctor step audit-logprobs completions man generated help" -f -a "audit-logprobs" -d 'Compare log-probabilities: captured, under each call\'s own context, and in rows'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select inspect ls show why diff build-rows du report cleanup-plan config doctor step audit-logprobs completions man generated help" -f -a "completions" -d 'Print shell completions'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select inspect ls show why diff build-rows du report cleanup-plan config doctor step audit-logprobs completions man generated help" -f -a "man" -d 'Print a man page'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select inspect ls show why diff build-rows du report cleanup-plan config doctor step audit-logprobs completions man generated help" -f -a "generated" -d 'Write the generated files of the repository'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and not __fish_seen_subcommand_from ingest validate select inspect ls show why diff build-rows du report cleanup-plan config doctor step audit-logprobs completions man generated help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and __fish_seen_subcommand_from config" -f -a "check" -d 'Report everything that keeps a file from forest training'
complete -c forestctl -n "__fish_forestctl_using_subcommand help; and __fish_seen_subcommand_from config" -f -a "show" -d 'Print every setting of build-rows, and where its value comes from'
