#compdef forestctl

autoload -U is-at-least

_forestctl() {
    typeset -A opt_args
    typeset -a _arguments_options
    local ret=1

    if is-at-least 5.2; then
        _arguments_options=(-s -S -C)
    else
        _arguments_options=(-s -C)
    fi

    local context curcontext="$curcontext" state line
    _arguments "${_arguments_options[@]}" : \
'--format=[How results are printed on stdout\: human, json, jsonl, or csv]:FORMAT:((human\:"For reading; not stable"
json\:"One versioned JSON document"
jsonl\:"One JSON object per item and line"
csv\:"A table with a header line"))' \
'--color=[When to colour\: auto, always, or never; NO_COLOR is honoured]:WHEN:((auto\:"On a terminal, unless NO_COLOR is set"
always\:"Always"
never\:"Never"))' \
'-j+[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--jobs=[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'(-v --verbose)-q[Say only what is asked for; exit codes stay]' \
'(-v --verbose)--quiet[Say only what is asked for; exit codes stay]' \
'*-v[Log what is being done; twice for details]' \
'*--verbose[Log what is being done; twice for details]' \
'-h[Print help]' \
'--help[Print help]' \
'-V[Print version]' \
'--version[Print version]' \
":: :_forestctl_commands" \
"*::: :->forestctl" \
&& ret=0
    case $state in
    (forestctl)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:forestctl-command-$line[1]:"
        case $line[1] in
            (ingest)
_arguments "${_arguments_options[@]}" : \
'--files-from=[Read more sources from this file, one per line; \`-\` is stdin]:FILE:_files' \
'-o+[The archive to write or to add to]:ARCHIVE:_files' \
'--output=[The archive to write or to add to]:ARCHIVE:_files' \
'--format=[How results are printed on stdout\: human, json, jsonl, or csv]:FORMAT:((human\:"For reading; not stable"
json\:"One versioned JSON document"
jsonl\:"One JSON object per item and line"
csv\:"A table with a header line"))' \
'--color=[When to colour\: auto, always, or never; NO_COLOR is honoured]:WHEN:((auto\:"On a terminal, unless NO_COLOR is set"
always\:"Always"
never\:"Never"))' \
'-j+[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--jobs=[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--force[Replace an existing archive as a whole]' \
'(-v --verbose)-q[Say only what is asked for; exit codes stay]' \
'(-v --verbose)--quiet[Say only what is asked for; exit codes stay]' \
'*-v[Log what is being done; twice for details]' \
'*--verbose[Log what is being done; twice for details]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
'*::sources -- Files, folders or globs of captures\: staged records with receipts, a Gym file store, Gym rollouts:_files' \
&& ret=0
;;
(validate)
_arguments "${_arguments_options[@]}" : \
'--cumulative=[Calls whose cumulative hash is computed again; all is quadratic in the length of a chain]:CALLS:((endpoints\:"Scored calls and calls without a child"
all\:"Every call"))' \
'--read-data=[Read tensor data, too\: all, one share of several (2/5), or a percentage (2.5%). Digests of rollouts whose calls are signed are computed again, too]::SHARE:_default' \
'--policy=[Select by this policy too, and report why rollouts are masked and groups dropped]:POLICY:_default' \
'--selector-python=[Python interpreter of a module\:function policy]:PYTHON:_files' \
'--selector-timeout=[Seconds that a selector may take for one rollout]:SECONDS:_default' \
'--config=[NeMo-RL YAML whose selection policy is taken, unless --policy says another]:YAML:_files' \
'*--report=[Report to another tool too\: junit=FILE, sarif=FILE, github, or github=FILE]:REPORT:_default' \
'--fail-on=[Least severity of a finding that makes the exit code 1]:SEVERITY:((never\:"No finding does"
error\:"Wrong evidence only"
warning\:"Whatever masks, too"))' \
'*--deny=[Make findings of these codes errors; \`warnings\` names all warnings]:CODE:(malformed_json malformed_record malformed_receipt malformed_media malformed_rollout line_too_long unreadable_source quarantine_full superseded_attempt malformed_sidecar orphan_tensor token_id_out_of_range conflicting_record unknown_scope conflicting_store_entry torn_store_tail store_unreadable unresolved_parent parent_digest_mismatch unsupported_schema unsupported_digest unsupported_extras_digest unsupported_fingerprint unsupported_replay unsupported_recovery rollout_failed capture_poisoned empty_manifest duplicate_manifest_row duplicate_staging_key row_count_mismatch duplicate_snapshot snapshot_identity_mismatch snapshot_order_mismatch wrong_rollout wrong_model_call_id wrong_parent_call_id wrong_mode wrong_prev_len wrong_delta_len wrong_cum_len wrong_weight_version wrong_digest wrong_extras_digest wrong_chain_hash wrong_cumulative_hash wrong_schema_version wrong_digest_version wrong_extras_digest_version invalid_snapshot corrupt_digest corrupt_extras_digest missing_parent parent_length_mismatch lineage_cycle missing_terminal chain_hash_mismatch invalid_mask_order empty_generation cumulative_hash_mismatch missing_receipt receipt_reward_mismatch uncommitted_record unaccounted_call capture_pending capture_failed capture_cancelled completion_failed completeness_unknown capture_incomplete completion_unrecorded clamped_logprob positive_logprob entry_digest_mismatch media_flag_mismatch media_metadata_mismatch invalid_media_geometry media_span_order media_span_outside_prompt media_token_mismatch media_uncovered media_not_new media_retained_changed media_prefix_mismatch missing_media_tensor unexpected_media_tensor invalid_media_tensor media_count_mismatch media_size_mismatch media_frame_mismatch media_size_indivisible media_patch_mismatch media_merge_mismatch media_frames_mixed media_dtype_mismatch media_patch_size_mismatch selection_not_closed failed_selected_call missing_reward missing_logprob missing_evidence ambiguous_evidence contradictory_evidence duplicated_evidence unmatched_evidence partial_generation unsupported_item several_sessions terminal_not_selected terminal_mismatch unattributed_terminal missing_completion selector_failed selector_timeout invalid_selection no_verified_layout too_few_valid_rollouts inconsistent_group incomplete_group route_shape_mismatch invalid_route overlong seq_logprob_error environment_masked corrupt_file missing_tensor corrupt_tensor inconsistent_archive unlisted_file unknown_code row_span_mismatch row_context_mismatch captured_logprob_mismatch warnings)' \
'*--warn=[Make findings of these codes warnings]:CODE:(malformed_json malformed_record malformed_receipt malformed_media malformed_rollout line_too_long unreadable_source quarantine_full superseded_attempt malformed_sidecar orphan_tensor token_id_out_of_range conflicting_record unknown_scope conflicting_store_entry torn_store_tail store_unreadable unresolved_parent parent_digest_mismatch unsupported_schema unsupported_digest unsupported_extras_digest unsupported_fingerprint unsupported_replay unsupported_recovery rollout_failed capture_poisoned empty_manifest duplicate_manifest_row duplicate_staging_key row_count_mismatch duplicate_snapshot snapshot_identity_mismatch snapshot_order_mismatch wrong_rollout wrong_model_call_id wrong_parent_call_id wrong_mode wrong_prev_len wrong_delta_len wrong_cum_len wrong_weight_version wrong_digest wrong_extras_digest wrong_chain_hash wrong_cumulative_hash wrong_schema_version wrong_digest_version wrong_extras_digest_version invalid_snapshot corrupt_digest corrupt_extras_digest missing_parent parent_length_mismatch lineage_cycle missing_terminal chain_hash_mismatch invalid_mask_order empty_generation cumulative_hash_mismatch missing_receipt receipt_reward_mismatch uncommitted_record unaccounted_call capture_pending capture_failed capture_cancelled completion_failed completeness_unknown capture_incomplete completion_unrecorded clamped_logprob positive_logprob entry_digest_mismatch media_flag_mismatch media_metadata_mismatch invalid_media_geometry media_span_order media_span_outside_prompt media_token_mismatch media_uncovered media_not_new media_retained_changed media_prefix_mismatch missing_media_tensor unexpected_media_tensor invalid_media_tensor media_count_mismatch media_size_mismatch media_frame_mismatch media_size_indivisible media_patch_mismatch media_merge_mismatch media_frames_mixed media_dtype_mismatch media_patch_size_mismatch selection_not_closed failed_selected_call missing_reward missing_logprob missing_evidence ambiguous_evidence contradictory_evidence duplicated_evidence unmatched_evidence partial_generation unsupported_item several_sessions terminal_not_selected terminal_mismatch unattributed_terminal missing_completion selector_failed selector_timeout invalid_selection no_verified_layout too_few_valid_rollouts inconsistent_group incomplete_group route_shape_mismatch invalid_route overlong seq_logprob_error environment_masked corrupt_file missing_tensor corrupt_tensor inconsistent_archive unlisted_file unknown_code row_span_mismatch row_context_mismatch captured_logprob_mismatch warnings)' \
'*--allow=[Leave findings of these codes out; how many they were is still said]:CODE:(malformed_json malformed_record malformed_receipt malformed_media malformed_rollout line_too_long unreadable_source quarantine_full superseded_attempt malformed_sidecar orphan_tensor token_id_out_of_range conflicting_record unknown_scope conflicting_store_entry torn_store_tail store_unreadable unresolved_parent parent_digest_mismatch unsupported_schema unsupported_digest unsupported_extras_digest unsupported_fingerprint unsupported_replay unsupported_recovery rollout_failed capture_poisoned empty_manifest duplicate_manifest_row duplicate_staging_key row_count_mismatch duplicate_snapshot snapshot_identity_mismatch snapshot_order_mismatch wrong_rollout wrong_model_call_id wrong_parent_call_id wrong_mode wrong_prev_len wrong_delta_len wrong_cum_len wrong_weight_version wrong_digest wrong_extras_digest wrong_chain_hash wrong_cumulative_hash wrong_schema_version wrong_digest_version wrong_extras_digest_version invalid_snapshot corrupt_digest corrupt_extras_digest missing_parent parent_length_mismatch lineage_cycle missing_terminal chain_hash_mismatch invalid_mask_order empty_generation cumulative_hash_mismatch missing_receipt receipt_reward_mismatch uncommitted_record unaccounted_call capture_pending capture_failed capture_cancelled completion_failed completeness_unknown capture_incomplete completion_unrecorded clamped_logprob positive_logprob entry_digest_mismatch media_flag_mismatch media_metadata_mismatch invalid_media_geometry media_span_order media_span_outside_prompt media_token_mismatch media_uncovered media_not_new media_retained_changed media_prefix_mismatch missing_media_tensor unexpected_media_tensor invalid_media_tensor media_count_mismatch media_size_mismatch media_frame_mismatch media_size_indivisible media_patch_mismatch media_merge_mismatch media_frames_mixed media_dtype_mismatch media_patch_size_mismatch selection_not_closed failed_selected_call missing_reward missing_logprob missing_evidence ambiguous_evidence contradictory_evidence duplicated_evidence unmatched_evidence partial_generation unsupported_item several_sessions terminal_not_selected terminal_mismatch unattributed_terminal missing_completion selector_failed selector_timeout invalid_selection no_verified_layout too_few_valid_rollouts inconsistent_group incomplete_group route_shape_mismatch invalid_route overlong seq_logprob_error environment_masked corrupt_file missing_tensor corrupt_tensor inconsistent_archive unlisted_file unknown_code row_span_mismatch row_context_mismatch captured_logprob_mismatch warnings)' \
'--format=[How results are printed on stdout\: human, json, jsonl, or csv]:FORMAT:((human\:"For reading; not stable"
json\:"One versioned JSON document"
jsonl\:"One JSON object per item and line"
csv\:"A table with a header line"))' \
'--color=[When to colour\: auto, always, or never; NO_COLOR is honoured]:WHEN:((auto\:"On a terminal, unless NO_COLOR is set"
always\:"Always"
never\:"Never"))' \
'-j+[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--jobs=[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--assume-complete[Take sources that cannot tell whether calls were lost as complete]' \
'(-v --verbose)-q[Say only what is asked for; exit codes stay]' \
'(-v --verbose)--quiet[Say only what is asked for; exit codes stay]' \
'*-v[Log what is being done; twice for details]' \
'*--verbose[Log what is being done; twice for details]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
':archive -- The archive:_files' \
&& ret=0
;;
(select)
_arguments "${_arguments_options[@]}" : \
'--config=[NeMo-RL YAML whose sections token_capture, policy, grpo, loss_fn and async_rl are read]:YAML:_files' \
'--policy=[Which captured calls train \[default\: returned_history\]]:POLICY:_default' \
'--selector-python=[Python interpreter of a module\:function policy]:PYTHON:_files' \
'--selector-timeout=[Seconds that a selector may take for one rollout]:SECONDS:_default' \
'--min-valid-fraction=[Drop prompt groups of which a smaller share of rollouts has a verified layout]:FRACTION:_default' \
'--format=[How results are printed on stdout\: human, json, jsonl, or csv]:FORMAT:((human\:"For reading; not stable"
json\:"One versioned JSON document"
jsonl\:"One JSON object per item and line"
csv\:"A table with a header line"))' \
'--color=[When to colour\: auto, always, or never; NO_COLOR is honoured]:WHEN:((auto\:"On a terminal, unless NO_COLOR is set"
always\:"Always"
never\:"Never"))' \
'-j+[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--jobs=[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--assume-complete[Take sources that cannot tell whether calls were lost as complete]' \
'(-v --verbose)-q[Say only what is asked for; exit codes stay]' \
'(-v --verbose)--quiet[Say only what is asked for; exit codes stay]' \
'*-v[Log what is being done; twice for details]' \
'*--verbose[Log what is being done; twice for details]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
':archive -- The archive:_files' \
&& ret=0
;;
(inspect)
_arguments "${_arguments_options[@]}" : \
'--svg=[Write the picture of the rollout as SVG, and nothing else; - is stdout]:FILE:_files' \
'--tokenizer=[tokenizer.json of the model\: shows text beside token ids]:FILE:_files' \
'--config=[NeMo-RL YAML whose sections token_capture, policy, grpo, loss_fn and async_rl are read]:YAML:_files' \
'--policy=[Which captured calls train \[default\: returned_history\]]:POLICY:_default' \
'--selector-python=[Python interpreter of a module\:function policy]:PYTHON:_files' \
'--selector-timeout=[Seconds that a selector may take for one rollout]:SECONDS:_default' \
'--min-valid-fraction=[Drop prompt groups of which a smaller share of rollouts has a verified layout]:FRACTION:_default' \
'--no-leave-one-out=[Keep the owner'\''s own reward in its baseline]::BOOL:(true false)' \
'--no-normalize=[Do not divide by the standard deviation of the rewards]::BOOL:(true false)' \
'--advantage-clip-low=[Least advantage of an owner that trains]:A:_default' \
'--advantage-clip-high=[Greatest advantage of an owner that trains]:A:_default' \
'--overlong-filtering=[Mask rollouts of which a selected generation stopped at a length limit]::BOOL:(true false)' \
'--masked-reward-policy=[Whose rewards enter the baseline \[default\: exclude\]]:POLICY:((exclude\:"Only owners that train"
include\:"Also owners that a learner filter masks (overlong, sequence error)"
include_all\:"Every slot of the group"))' \
'--format=[How results are printed on stdout\: human, json, jsonl, or csv]:FORMAT:((human\:"For reading; not stable"
json\:"One versioned JSON document"
jsonl\:"One JSON object per item and line"
csv\:"A table with a header line"))' \
'--color=[When to colour\: auto, always, or never; NO_COLOR is honoured]:WHEN:((auto\:"On a terminal, unless NO_COLOR is set"
always\:"Always"
never\:"Never"))' \
'-j+[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--jobs=[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--force[Replace an existing file]' \
'--assume-complete[Take sources that cannot tell whether calls were lost as complete]' \
'(-v --verbose)-q[Say only what is asked for; exit codes stay]' \
'(-v --verbose)--quiet[Say only what is asked for; exit codes stay]' \
'*-v[Log what is being done; twice for details]' \
'*--verbose[Log what is being done; twice for details]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
':archive -- The archive:_files' \
'::target -- A rollout or a call to open; ids may be cut short:_default' \
&& ret=0
;;
(ls)
_arguments "${_arguments_options[@]}" : \
'*--group=[Only this prompt group; may be given several times]:GROUP:_default' \
'--verdict=[Only these\: valid, masked, or dropped with their group]:VERDICT:((valid\:"Its rows carry loss"
masked\:"Kept, without loss"
dropped\:"Left out with its whole prompt group"))' \
'--reason=[Only those that carry no loss for this reason, among others; docs/codes.md lists them]:CODE:_default' \
'--finding=[Only those with a finding of this code, whether it masks or not]:CODE:_default' \
'--min-reward=[Only those with at least this reward]:X:_default' \
'--max-reward=[Only those with at most this reward]:X:_default' \
'--source=[Only this form of capture\: staged, gym_store, or inline_rollouts]:FORM:((staged\:"Staged records with receipts (schema 2 or 3)"
gym_store\:"Gym'\''s file store of \`TokenEntry\` lines"
inline_rollouts\:"Gym rollouts JSONL with inline token arrays"))' \
'--sort=[Sort by id, reward, tokens, calls, or rows; numbers from the largest down]:KEY:((id\:"Group, then slot"
reward\:"Reward, the highest first; rollouts without one last"
tokens\:"Captured tokens, most first"
calls\:"Captured calls, most first"
rows\:"Physical rows, most first"))' \
'--config=[NeMo-RL YAML whose sections token_capture, policy, grpo, loss_fn and async_rl are read]:YAML:_files' \
'--policy=[Which captured calls train \[default\: returned_history\]]:POLICY:_default' \
'--selector-python=[Python interpreter of a module\:function policy]:PYTHON:_files' \
'--selector-timeout=[Seconds that a selector may take for one rollout]:SECONDS:_default' \
'--min-valid-fraction=[Drop prompt groups of which a smaller share of rollouts has a verified layout]:FRACTION:_default' \
'--no-leave-one-out=[Keep the owner'\''s own reward in its baseline]::BOOL:(true false)' \
'--no-normalize=[Do not divide by the standard deviation of the rewards]::BOOL:(true false)' \
'--advantage-clip-low=[Least advantage of an owner that trains]:A:_default' \
'--advantage-clip-high=[Greatest advantage of an owner that trains]:A:_default' \
'--overlong-filtering=[Mask rollouts of which a selected generation stopped at a length limit]::BOOL:(true false)' \
'--masked-reward-policy=[Whose rewards enter the baseline \[default\: exclude\]]:POLICY:((exclude\:"Only owners that train"
include\:"Also owners that a learner filter masks (overlong, sequence error)"
include_all\:"Every slot of the group"))' \
'--format=[How results are printed on stdout\: human, json, jsonl, or csv]:FORMAT:((human\:"For reading; not stable"
json\:"One versioned JSON document"
jsonl\:"One JSON object per item and line"
csv\:"A table with a header line"))' \
'--color=[When to colour\: auto, always, or never; NO_COLOR is honoured]:WHEN:((auto\:"On a terminal, unless NO_COLOR is set"
always\:"Always"
never\:"Never"))' \
'-j+[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--jobs=[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--reverse[Turn the order around]' \
'--assume-complete[Take sources that cannot tell whether calls were lost as complete]' \
'(-v --verbose)-q[Say only what is asked for; exit codes stay]' \
'(-v --verbose)--quiet[Say only what is asked for; exit codes stay]' \
'*-v[Log what is being done; twice for details]' \
'*--verbose[Log what is being done; twice for details]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
':archive -- The archive:_files' \
&& ret=0
;;
(show)
_arguments "${_arguments_options[@]}" : \
'--tokenizer=[tokenizer.json of the model\: shows text beside token ids]:FILE:_files' \
'--config=[NeMo-RL YAML whose sections token_capture, policy, grpo, loss_fn and async_rl are read]:YAML:_files' \
'--policy=[Which captured calls train \[default\: returned_history\]]:POLICY:_default' \
'--selector-python=[Python interpreter of a module\:function policy]:PYTHON:_files' \
'--selector-timeout=[Seconds that a selector may take for one rollout]:SECONDS:_default' \
'--min-valid-fraction=[Drop prompt groups of which a smaller share of rollouts has a verified layout]:FRACTION:_default' \
'--no-leave-one-out=[Keep the owner'\''s own reward in its baseline]::BOOL:(true false)' \
'--no-normalize=[Do not divide by the standard deviation of the rewards]::BOOL:(true false)' \
'--advantage-clip-low=[Least advantage of an owner that trains]:A:_default' \
'--advantage-clip-high=[Greatest advantage of an owner that trains]:A:_default' \
'--overlong-filtering=[Mask rollouts of which a selected generation stopped at a length limit]::BOOL:(true false)' \
'--masked-reward-policy=[Whose rewards enter the baseline \[default\: exclude\]]:POLICY:((exclude\:"Only owners that train"
include\:"Also owners that a learner filter masks (overlong, sequence error)"
include_all\:"Every slot of the group"))' \
'--format=[How results are printed on stdout\: human, json, jsonl, or csv]:FORMAT:((human\:"For reading; not stable"
json\:"One versioned JSON document"
jsonl\:"One JSON object per item and line"
csv\:"A table with a header line"))' \
'--color=[When to colour\: auto, always, or never; NO_COLOR is honoured]:WHEN:((auto\:"On a terminal, unless NO_COLOR is set"
always\:"Always"
never\:"Never"))' \
'-j+[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--jobs=[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--assume-complete[Take sources that cannot tell whether calls were lost as complete]' \
'(-v --verbose)-q[Say only what is asked for; exit codes stay]' \
'(-v --verbose)--quiet[Say only what is asked for; exit codes stay]' \
'*-v[Log what is being done; twice for details]' \
'*--verbose[Log what is being done; twice for details]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
':archive -- The archive:_files' \
':rollout -- Id of the rollout, or how it begins:_default' \
&& ret=0
;;
(why)
_arguments "${_arguments_options[@]}" : \
'--tokenizer=[tokenizer.json of the model\: shows text beside token ids]:FILE:_files' \
'--config=[NeMo-RL YAML whose sections token_capture, policy, grpo, loss_fn and async_rl are read]:YAML:_files' \
'--policy=[Which captured calls train \[default\: returned_history\]]:POLICY:_default' \
'--selector-python=[Python interpreter of a module\:function policy]:PYTHON:_files' \
'--selector-timeout=[Seconds that a selector may take for one rollout]:SECONDS:_default' \
'--min-valid-fraction=[Drop prompt groups of which a smaller share of rollouts has a verified layout]:FRACTION:_default' \
'--no-leave-one-out=[Keep the owner'\''s own reward in its baseline]::BOOL:(true false)' \
'--no-normalize=[Do not divide by the standard deviation of the rewards]::BOOL:(true false)' \
'--advantage-clip-low=[Least advantage of an owner that trains]:A:_default' \
'--advantage-clip-high=[Greatest advantage of an owner that trains]:A:_default' \
'--overlong-filtering=[Mask rollouts of which a selected generation stopped at a length limit]::BOOL:(true false)' \
'--masked-reward-policy=[Whose rewards enter the baseline \[default\: exclude\]]:POLICY:((exclude\:"Only owners that train"
include\:"Also owners that a learner filter masks (overlong, sequence error)"
include_all\:"Every slot of the group"))' \
'--format=[How results are printed on stdout\: human, json, jsonl, or csv]:FORMAT:((human\:"For reading; not stable"
json\:"One versioned JSON document"
jsonl\:"One JSON object per item and line"
csv\:"A table with a header line"))' \
'--color=[When to colour\: auto, always, or never; NO_COLOR is honoured]:WHEN:((auto\:"On a terminal, unless NO_COLOR is set"
always\:"Always"
never\:"Never"))' \
'-j+[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--jobs=[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--assume-complete[Take sources that cannot tell whether calls were lost as complete]' \
'(-v --verbose)-q[Say only what is asked for; exit codes stay]' \
'(-v --verbose)--quiet[Say only what is asked for; exit codes stay]' \
'*-v[Log what is being done; twice for details]' \
'*--verbose[Log what is being done; twice for details]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
':archive -- The archive:_files' \
':target -- A rollout, a call, or ROLLOUT\:TOKEN, ROW\:TOKEN, CALL\:TOKEN; ids may be cut short:_default' \
&& ret=0
;;
(diff)
_arguments "${_arguments_options[@]}" : \
'*--policy=[Which captured calls train, as of select; given twice, once for each side]:POLICY:_default' \
'--selector-python=[Python interpreter of a module\:function policy]:PYTHON:_files' \
'--selector-timeout=[Seconds that a selector may take for one rollout]:SECONDS:_default' \
'--min-valid-fraction=[Drop prompt groups of which a smaller share of rollouts has a verified layout]:FRACTION:_default' \
'--config=[NeMo-RL YAML whose sections token_capture, policy, grpo, loss_fn and async_rl are read]:YAML:_files' \
'--no-leave-one-out=[Keep the owner'\''s own reward in its baseline]::BOOL:(true false)' \
'--no-normalize=[Do not divide by the standard deviation of the rewards]::BOOL:(true false)' \
'--advantage-clip-low=[Least advantage of an owner that trains]:A:_default' \
'--advantage-clip-high=[Greatest advantage of an owner that trains]:A:_default' \
'--overlong-filtering=[Mask rollouts of which a selected generation stopped at a length limit]::BOOL:(true false)' \
'--masked-reward-policy=[Whose rewards enter the baseline \[default\: exclude\]]:POLICY:((exclude\:"Only owners that train"
include\:"Also owners that a learner filter masks (overlong, sequence error)"
include_all\:"Every slot of the group"))' \
'--format=[How results are printed on stdout\: human, json, jsonl, or csv]:FORMAT:((human\:"For reading; not stable"
json\:"One versioned JSON document"
jsonl\:"One JSON object per item and line"
csv\:"A table with a header line"))' \
'--color=[When to colour\: auto, always, or never; NO_COLOR is honoured]:WHEN:((auto\:"On a terminal, unless NO_COLOR is set"
always\:"Always"
never\:"Never"))' \
'-j+[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--jobs=[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--assume-complete[Take sources that cannot tell whether calls were lost as complete]' \
'(-v --verbose)-q[Say only what is asked for; exit codes stay]' \
'(-v --verbose)--quiet[Say only what is asked for; exit codes stay]' \
'*-v[Log what is being done; twice for details]' \
'*--verbose[Log what is being done; twice for details]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
'*::archives -- The archive; two of them to compare archives:_files' \
&& ret=0
;;
(build-rows)
_arguments "${_arguments_options[@]}" : \
'-o+[The rows directory to write]:ROWS:_files' \
'--output=[The rows directory to write]:ROWS:_files' \
'--config=[NeMo-RL YAML whose sections token_capture, policy, grpo, loss_fn and async_rl are read]:YAML:_files' \
'--policy=[Which captured calls train \[default\: returned_history\]]:POLICY:_default' \
'--selector-python=[Python interpreter of a module\:function policy]:PYTHON:_files' \
'--selector-timeout=[Seconds that a selector may take for one rollout]:SECONDS:_default' \
'--min-valid-fraction=[Drop prompt groups of which a smaller share of rollouts has a verified layout]:FRACTION:_default' \
'--data-parallel=[Ranks that share the rows of a group]:N:_default' \
'--train-micro-batch=[Rows of a training microbatch \[default\: 1\]]:N:_default' \
'--logprob-micro-batch=[Rows of a log-probability microbatch \[default\: 1\]]:N:_default' \
'--sequence-packing=[Rows will be packed into bins\: only the ranks must divide their number]::BOOL:(true false)' \
'--min-step-batch-fraction=[Stop unless at least this share of the step'\''s prompt groups is kept]:FRACTION:_default' \
'--prompts-per-step=[Prompt groups of a step; without it, those in the archive]:N:_default' \
'--max-skipped-prompts=[Stop when more prompt groups than this are dropped]:N:_default' \
'--max-consecutive-dropped-prompts=[Stop when more prompt groups than this are dropped one after the other, in order of ids]:N:_default' \
'--pack-tokens=[Pack now\: tokens that a bin holds at most; rows.json lists the bins]:TOKENS:_default' \
'--packer=[How rows are assigned to bins \[default\: modified_first_fit_decreasing\]]:PACKER:((concatenative\:"In row order; a row that does not fit begins the next bin"
first_fit_decreasing\:"Longest first, each into the first bin with room"
first_fit_shuffle\:"In an order shuffled by the seed, each into the first bin with room"
modified_first_fit_decreasing\:"Long rows one by one, completed by shorter ones; what is left over longest first"))' \
'--row-pad-multiple=[The length of every row is rounded up to a multiple of this \[default\: 1\]]:N:_default' \
'--microbatch-order=[Order of the bins of a rank \[default\: packer\]]:ORDER:((packer\:"As the packer made them"
largest_first\:"Most tokens first"))' \
'--pack-seed=[Seed of first_fit_shuffle, as of Python'\''s random.seed]:SEED:_default' \
'--no-leave-one-out=[Keep the owner'\''s own reward in its baseline]::BOOL:(true false)' \
'--no-normalize=[Do not divide by the standard deviation of the rewards]::BOOL:(true false)' \
'--advantage-clip-low=[Least advantage of an owner that trains]:A:_default' \
'--advantage-clip-high=[Greatest advantage of an owner that trains]:A:_default' \
'--overlong-filtering=[Mask rollouts of which a selected generation stopped at a length limit]::BOOL:(true false)' \
'--masked-reward-policy=[Whose rewards enter the baseline \[default\: exclude\]]:POLICY:((exclude\:"Only owners that train"
include\:"Also owners that a learner filter masks (overlong, sequence error)"
include_all\:"Every slot of the group"))' \
'--seq-logprob-error-threshold=[Mask rollouts whose pooled error of captured log-probabilities exceeds this; needs --prev-logprobs]:X:_default' \
'--shard=[Write one of several shards, as 2/4\: whole prompt groups, about as many tokens in each]:I/N:_default' \
'--prev-logprobs=[Log-probabilities under the previous policy, as \`step --dump-logprobs\` writes them]:FILE:_files' \
'--gradient-weights=[Write each rollout'\''s share of the gradient, by token, row, and rollout means, as CSV]:FILE:_files' \
'--format=[How results are printed on stdout\: human, json, jsonl, or csv]:FORMAT:((human\:"For reading; not stable"
json\:"One versioned JSON document"
jsonl\:"One JSON object per item and line"
csv\:"A table with a header line"))' \
'--color=[When to colour\: auto, always, or never; NO_COLOR is honoured]:WHEN:((auto\:"On a terminal, unless NO_COLOR is set"
always\:"Always"
never\:"Never"))' \
'-j+[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--jobs=[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--force[Replace existing rows]' \
'--assume-complete[Take sources that cannot tell whether calls were lost as complete]' \
'--mask-errors[Write rows although evidence is wrong; the rollouts concerned are masked]' \
'(-v --verbose)-q[Say only what is asked for; exit codes stay]' \
'(-v --verbose)--quiet[Say only what is asked for; exit codes stay]' \
'*-v[Log what is being done; twice for details]' \
'*--verbose[Log what is being done; twice for details]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
':archive -- The archive:_files' \
&& ret=0
;;
(du)
_arguments "${_arguments_options[@]}" : \
'--by=[What to count by; the total comes first, then what gains the most seconds]:UNIT:((archive\:"Everything together"
group\:"Every prompt group"
rollout\:"Every rollout, which shares within itself alone"))' \
'*--model=[A model whose step is predicted\: a name, or a folder with config.json; repeatable \[default\: qwen3-0.6b, qwen3-1.7b, qwen3-4b, qwen3-8b\]]:NAME|DIR:_default' \
'--pack-tokens=[Tokens that are computed at once; rows that share more than fits are split, and each pack computes what it borrows]:TOKENS:_default' \
'--ranks=[Show how the packs would be balanced over this many ranks]:N:_default' \
'--config=[NeMo-RL YAML whose sections token_capture, policy, grpo, loss_fn and async_rl are read]:YAML:_files' \
'--policy=[Which captured calls train \[default\: returned_history\]]:POLICY:_default' \
'--selector-python=[Python interpreter of a module\:function policy]:PYTHON:_files' \
'--selector-timeout=[Seconds that a selector may take for one rollout]:SECONDS:_default' \
'--min-valid-fraction=[Drop prompt groups of which a smaller share of rollouts has a verified layout]:FRACTION:_default' \
'--format=[How results are printed on stdout\: human, json, jsonl, or csv]:FORMAT:((human\:"For reading; not stable"
json\:"One versioned JSON document"
jsonl\:"One JSON object per item and line"
csv\:"A table with a header line"))' \
'--color=[When to colour\: auto, always, or never; NO_COLOR is honoured]:WHEN:((auto\:"On a terminal, unless NO_COLOR is set"
always\:"Always"
never\:"Never"))' \
'-j+[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--jobs=[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--assume-complete[Take sources that cannot tell whether calls were lost as complete]' \
'(-v --verbose)-q[Say only what is asked for; exit codes stay]' \
'(-v --verbose)--quiet[Say only what is asked for; exit codes stay]' \
'*-v[Log what is being done; twice for details]' \
'*--verbose[Log what is being done; twice for details]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
':source -- An archive or a rows directory:_files' \
&& ret=0
;;
(report)
_arguments "${_arguments_options[@]}" : \
'-o+[The page to write; - is stdout]:HTML:_files' \
'--output=[The page to write; - is stdout]:HTML:_files' \
'--rollout=[Draw this rollout\: its id, or how it begins]:ROLLOUT:_default' \
'--tokenizer=[tokenizer.json of the model\: shows text beside token ids]:FILE:_files' \
'--config=[NeMo-RL YAML whose sections token_capture, policy, grpo, loss_fn and async_rl are read]:YAML:_files' \
'--policy=[Which captured calls train \[default\: returned_history\]]:POLICY:_default' \
'--selector-python=[Python interpreter of a module\:function policy]:PYTHON:_files' \
'--selector-timeout=[Seconds that a selector may take for one rollout]:SECONDS:_default' \
'--min-valid-fraction=[Drop prompt groups of which a smaller share of rollouts has a verified layout]:FRACTION:_default' \
'--data-parallel=[Ranks that share the rows of a group]:N:_default' \
'--train-micro-batch=[Rows of a training microbatch \[default\: 1\]]:N:_default' \
'--logprob-micro-batch=[Rows of a log-probability microbatch \[default\: 1\]]:N:_default' \
'--sequence-packing=[Rows will be packed into bins\: only the ranks must divide their number]::BOOL:(true false)' \
'--min-step-batch-fraction=[Stop unless at least this share of the step'\''s prompt groups is kept]:FRACTION:_default' \
'--prompts-per-step=[Prompt groups of a step; without it, those in the archive]:N:_default' \
'--max-skipped-prompts=[Stop when more prompt groups than this are dropped]:N:_default' \
'--max-consecutive-dropped-prompts=[Stop when more prompt groups than this are dropped one after the other, in order of ids]:N:_default' \
'--pack-tokens=[Pack now\: tokens that a bin holds at most; rows.json lists the bins]:TOKENS:_default' \
'--packer=[How rows are assigned to bins \[default\: modified_first_fit_decreasing\]]:PACKER:((concatenative\:"In row order; a row that does not fit begins the next bin"
first_fit_decreasing\:"Longest first, each into the first bin with room"
first_fit_shuffle\:"In an order shuffled by the seed, each into the first bin with room"
modified_first_fit_decreasing\:"Long rows one by one, completed by shorter ones; what is left over longest first"))' \
'--row-pad-multiple=[The length of every row is rounded up to a multiple of this \[default\: 1\]]:N:_default' \
'--microbatch-order=[Order of the bins of a rank \[default\: packer\]]:ORDER:((packer\:"As the packer made them"
largest_first\:"Most tokens first"))' \
'--pack-seed=[Seed of first_fit_shuffle, as of Python'\''s random.seed]:SEED:_default' \
'--no-leave-one-out=[Keep the owner'\''s own reward in its baseline]::BOOL:(true false)' \
'--no-normalize=[Do not divide by the standard deviation of the rewards]::BOOL:(true false)' \
'--advantage-clip-low=[Least advantage of an owner that trains]:A:_default' \
'--advantage-clip-high=[Greatest advantage of an owner that trains]:A:_default' \
'--overlong-filtering=[Mask rollouts of which a selected generation stopped at a length limit]::BOOL:(true false)' \
'--masked-reward-policy=[Whose rewards enter the baseline \[default\: exclude\]]:POLICY:((exclude\:"Only owners that train"
include\:"Also owners that a learner filter masks (overlong, sequence error)"
include_all\:"Every slot of the group"))' \
'--seq-logprob-error-threshold=[Mask rollouts whose pooled error of captured log-probabilities exceeds this; needs --prev-logprobs]:X:_default' \
'--prev-logprobs=[Log-probabilities under the previous policy, as \`step --dump-logprobs\` writes them]:FILE:_files' \
'--format=[How results are printed on stdout\: human, json, jsonl, or csv]:FORMAT:((human\:"For reading; not stable"
json\:"One versioned JSON document"
jsonl\:"One JSON object per item and line"
csv\:"A table with a header line"))' \
'--color=[When to colour\: auto, always, or never; NO_COLOR is honoured]:WHEN:((auto\:"On a terminal, unless NO_COLOR is set"
always\:"Always"
never\:"Never"))' \
'-j+[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--jobs=[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--force[Replace an existing file]' \
'--assume-complete[Take sources that cannot tell whether calls were lost as complete]' \
'(-v --verbose)-q[Say only what is asked for; exit codes stay]' \
'(-v --verbose)--quiet[Say only what is asked for; exit codes stay]' \
'*-v[Log what is being done; twice for details]' \
'*--verbose[Log what is being done; twice for details]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
':archive -- The archive:_files' \
&& ret=0
;;
(cleanup-plan)
_arguments "${_arguments_options[@]}" : \
'--format=[How results are printed on stdout\: human, json, jsonl, or csv]:FORMAT:((human\:"For reading; not stable"
json\:"One versioned JSON document"
jsonl\:"One JSON object per item and line"
csv\:"A table with a header line"))' \
'--color=[When to colour\: auto, always, or never; NO_COLOR is honoured]:WHEN:((auto\:"On a terminal, unless NO_COLOR is set"
always\:"Always"
never\:"Never"))' \
'-j+[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--jobs=[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'(-v --verbose)-q[Say only what is asked for; exit codes stay]' \
'(-v --verbose)--quiet[Say only what is asked for; exit codes stay]' \
'*-v[Log what is being done; twice for details]' \
'*--verbose[Log what is being done; twice for details]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
':archive -- The archive:_files' \
&& ret=0
;;
(config)
_arguments "${_arguments_options[@]}" : \
'--format=[How results are printed on stdout\: human, json, jsonl, or csv]:FORMAT:((human\:"For reading; not stable"
json\:"One versioned JSON document"
jsonl\:"One JSON object per item and line"
csv\:"A table with a header line"))' \
'--color=[When to colour\: auto, always, or never; NO_COLOR is honoured]:WHEN:((auto\:"On a terminal, unless NO_COLOR is set"
always\:"Always"
never\:"Never"))' \
'-j+[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--jobs=[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'(-v --verbose)-q[Say only what is asked for; exit codes stay]' \
'(-v --verbose)--quiet[Say only what is asked for; exit codes stay]' \
'*-v[Log what is being done; twice for details]' \
'*--verbose[Log what is being done; twice for details]' \
'-h[Print help]' \
'--help[Print help]' \
'-V[Print version]' \
'--version[Print version]' \
":: :_forestctl__subcmd__config_commands" \
"*::: :->config" \
&& ret=0

    case $state in
    (config)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:forestctl-config-command-$line[1]:"
        case $line[1] in
            (check)
_arguments "${_arguments_options[@]}" : \
'--selector-python=[Python interpreter of a module\:function policy]:PYTHON:_files' \
'--selector-timeout=[Seconds that a selector may take for one rollout]:SECONDS:_default' \
'--format=[How results are printed on stdout\: human, json, jsonl, or csv]:FORMAT:((human\:"For reading; not stable"
json\:"One versioned JSON document"
jsonl\:"One JSON object per item and line"
csv\:"A table with a header line"))' \
'--color=[When to colour\: auto, always, or never; NO_COLOR is honoured]:WHEN:((auto\:"On a terminal, unless NO_COLOR is set"
always\:"Always"
never\:"Never"))' \
'-j+[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--jobs=[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'(-v --verbose)-q[Say only what is asked for; exit codes stay]' \
'(-v --verbose)--quiet[Say only what is asked for; exit codes stay]' \
'*-v[Log what is being done; twice for details]' \
'*--verbose[Log what is being done; twice for details]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
':file -- The file:_files' \
&& ret=0
;;
(show)
_arguments "${_arguments_options[@]}" : \
'--policy=[Which captured calls train \[default\: returned_history\]]:POLICY:_default' \
'--selector-python=[Python interpreter of a module\:function policy]:PYTHON:_files' \
'--selector-timeout=[Seconds that a selector may take for one rollout]:SECONDS:_default' \
'--min-valid-fraction=[Drop prompt groups of which a smaller share of rollouts has a verified layout]:FRACTION:_default' \
'--data-parallel=[Ranks that share the rows of a group]:N:_default' \
'--train-micro-batch=[Rows of a training microbatch \[default\: 1\]]:N:_default' \
'--logprob-micro-batch=[Rows of a log-probability microbatch \[default\: 1\]]:N:_default' \
'--sequence-packing=[Rows will be packed into bins\: only the ranks must divide their number]::BOOL:(true false)' \
'--min-step-batch-fraction=[Stop unless at least this share of the step'\''s prompt groups is kept]:FRACTION:_default' \
'--prompts-per-step=[Prompt groups of a step; without it, those in the archive]:N:_default' \
'--max-skipped-prompts=[Stop when more prompt groups than this are dropped]:N:_default' \
'--max-consecutive-dropped-prompts=[Stop when more prompt groups than this are dropped one after the other, in order of ids]:N:_default' \
'--pack-tokens=[Pack now\: tokens that a bin holds at most; rows.json lists the bins]:TOKENS:_default' \
'--packer=[How rows are assigned to bins \[default\: modified_first_fit_decreasing\]]:PACKER:((concatenative\:"In row order; a row that does not fit begins the next bin"
first_fit_decreasing\:"Longest first, each into the first bin with room"
first_fit_shuffle\:"In an order shuffled by the seed, each into the first bin with room"
modified_first_fit_decreasing\:"Long rows one by one, completed by shorter ones; what is left over longest first"))' \
'--row-pad-multiple=[The length of every row is rounded up to a multiple of this \[default\: 1\]]:N:_default' \
'--microbatch-order=[Order of the bins of a rank \[default\: packer\]]:ORDER:((packer\:"As the packer made them"
largest_first\:"Most tokens first"))' \
'--pack-seed=[Seed of first_fit_shuffle, as of Python'\''s random.seed]:SEED:_default' \
'--no-leave-one-out=[Keep the owner'\''s own reward in its baseline]::BOOL:(true false)' \
'--no-normalize=[Do not divide by the standard deviation of the rewards]::BOOL:(true false)' \
'--advantage-clip-low=[Least advantage of an owner that trains]:A:_default' \
'--advantage-clip-high=[Greatest advantage of an owner that trains]:A:_default' \
'--overlong-filtering=[Mask rollouts of which a selected generation stopped at a length limit]::BOOL:(true false)' \
'--masked-reward-policy=[Whose rewards enter the baseline \[default\: exclude\]]:POLICY:((exclude\:"Only owners that train"
include\:"Also owners that a learner filter masks (overlong, sequence error)"
include_all\:"Every slot of the group"))' \
'--seq-logprob-error-threshold=[Mask rollouts whose pooled error of captured log-probabilities exceeds this; needs --prev-logprobs]:X:_default' \
'--format=[How results are printed on stdout\: human, json, jsonl, or csv]:FORMAT:((human\:"For reading; not stable"
json\:"One versioned JSON document"
jsonl\:"One JSON object per item and line"
csv\:"A table with a header line"))' \
'--color=[When to colour\: auto, always, or never; NO_COLOR is honoured]:WHEN:((auto\:"On a terminal, unless NO_COLOR is set"
always\:"Always"
never\:"Never"))' \
'-j+[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--jobs=[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--assume-complete[Take sources that cannot tell whether calls were lost as complete]' \
'(-v --verbose)-q[Say only what is asked for; exit codes stay]' \
'(-v --verbose)--quiet[Say only what is asked for; exit codes stay]' \
'*-v[Log what is being done; twice for details]' \
'*--verbose[Log what is being done; twice for details]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
':file -- The file:_files' \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
":: :_forestctl__subcmd__config__subcmd__help_commands" \
"*::: :->help" \
&& ret=0

    case $state in
    (help)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:forestctl-config-help-command-$line[1]:"
        case $line[1] in
            (check)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(show)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
        esac
    ;;
esac
;;
        esac
    ;;
esac
;;
(doctor)
_arguments "${_arguments_options[@]}" : \
'--selector-python=[Python interpreter of module\:function policies]:PYTHON:_files' \
'--format=[How results are printed on stdout\: human, json, jsonl, or csv]:FORMAT:((human\:"For reading; not stable"
json\:"One versioned JSON document"
jsonl\:"One JSON object per item and line"
csv\:"A table with a header line"))' \
'--color=[When to colour\: auto, always, or never; NO_COLOR is honoured]:WHEN:((auto\:"On a terminal, unless NO_COLOR is set"
always\:"Always"
never\:"Never"))' \
'-j+[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--jobs=[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'(-v --verbose)-q[Say only what is asked for; exit codes stay]' \
'(-v --verbose)--quiet[Say only what is asked for; exit codes stay]' \
'*-v[Log what is being done; twice for details]' \
'*--verbose[Log what is being done; twice for details]' \
'-h[Print help]' \
'--help[Print help]' \
'-V[Print version]' \
'--version[Print version]' \
&& ret=0
;;
(step)
_arguments "${_arguments_options[@]}" : \
'--model=[Hugging Face model directory\: config.json and safetensors]:DIR:_files' \
'(--model)--resume=[Checkpoint to go on from\: model, optimizer state, step counter and settings]:CKPT:_files' \
'-o+[The checkpoint directory to write]:CKPT:_files' \
'--output=[The checkpoint directory to write]:CKPT:_files' \
'--steps=[Passes over the rows; log-probabilities of the previous policy are taken before the first]:N:_default' \
'--minibatches=[Optimizer steps of a pass, each on its share of the rollouts]:M:_default' \
'--reference-model=[Model of the KL term]:DIR:_files' \
'--prev-model=[Model that previous log-probabilities are taken from, instead of --model]:DIR:_files' \
'--kl-coef=[Coefficient of the KL term \[default\: 0.01 with --reference-model, else 0\]]:X:_default' \
'--lr=[Learning rate \[default\: 5e-6\]]:X:_default' \
'--weight-decay=[Decoupled weight decay of every parameter \[default\: 0.01\]]:X:_default' \
'--max-grad-norm=[Scale gradients down to this global norm \[default\: 1\]]:X:_default' \
'--betas=[Decay of the first and second moment \[default\: 0.9,0.999\]]:B1,B2:_default' \
'--dtype=[Number format of computation and checkpoint \[default\: the model'\''s own\]]:DTYPE:((float64\:"Everything in float64, also norms, rotary tables and softmax"
float32\:"Everything in float32"
bfloat16\:"Products in bfloat16; norms, softmax, main weights and optimizer in float32"))' \
'--device=[cpu, cuda, or cuda\:INDEX]:DEVICE:_default' \
'--seed=[Seed of libtorch'\''s generator; a step draws nothing from it]:N:_default' \
'--pack-tokens=[Tokens of rows that are computed at once; 0 computes row by row \[default\: 16384\]]:TOKENS:_default' \
'--share-prefixes=[Compute tokens that rows share from their beginning on once \[default\: auto\]]::WHEN:((auto\:"When it saves time"
always\:"Always"
never\:"Every row by itself"))' \
'--attention=[How attention over shared tokens is computed \[default\: auto\]]:WAY:((auto\:"Whichever is expected to take less time"
suffix\:"One call, with the keys of every path gathered behind one another"
cascade\:"Squares and rectangles, merged by their log-sum-exp"))' \
'--config=[NeMo-RL YAML whose sections loss_fn and grpo are read; flags come first]:YAML:_files' \
'--dump-gradients=[Also write the gradients of the last optimizer step, as safetensors\: before clipping, on CUDA after it]:FILE:_files' \
'--dump-logprobs=[Also write the rows'\'' log-probabilities before the update, as safetensors]:FILE:_files' \
'--dump-rows=[Also write metrics of every row in every optimizer step, a line of JSON each]:FILE:_files' \
'--tensorboard=[Also write every metric of every optimizer step as a TensorBoard event file in this directory]:DIR:_files' \
'--measure=[Only measure\: this many steps on drawn weights of the model'\''s config.json, a line of JSON each; nothing is written]:STEPS:_default' \
'--format=[How results are printed on stdout\: human, json, jsonl, or csv]:FORMAT:((human\:"For reading; not stable"
json\:"One versioned JSON document"
jsonl\:"One JSON object per item and line"
csv\:"A table with a header line"))' \
'--color=[When to colour\: auto, always, or never; NO_COLOR is honoured]:WHEN:((auto\:"On a terminal, unless NO_COLOR is set"
always\:"Always"
never\:"Never"))' \
'-j+[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--jobs=[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--deterministic[Give the same bytes every time\: deterministic kernels on CUDA, one thread on the processor]' \
'--profile-time[Tell where training time goes on CUDA too\: two events around every product and attention, and a wait after every pack]' \
'--force[Replace existing outputs]' \
'(-v --verbose)-q[Say only what is asked for; exit codes stay]' \
'(-v --verbose)--quiet[Say only what is asked for; exit codes stay]' \
'*-v[Log what is being done; twice for details]' \
'*--verbose[Log what is being done; twice for details]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
'*::rows -- The rows directory, or those of all shards of a batch:_files' \
&& ret=0
;;
(audit-logprobs)
_arguments "${_arguments_options[@]}" : \
'--model=[Hugging Face model directory\: config.json and safetensors]:DIR:_files' \
'--archive=[The archive that the rows were built from]:ARCHIVE:_files' \
'--config=[NeMo-RL YAML whose sections token_capture, policy, grpo, loss_fn and async_rl are read]:YAML:_files' \
'--policy=[Which captured calls train \[default\: returned_history\]]:POLICY:_default' \
'--selector-python=[Python interpreter of a module\:function policy]:PYTHON:_files' \
'--selector-timeout=[Seconds that a selector may take for one rollout]:SECONDS:_default' \
'--min-valid-fraction=[Drop prompt groups of which a smaller share of rollouts has a verified layout]:FRACTION:_default' \
'--dtype=[Number format of the computation \[default\: the model'\''s own\]]:DTYPE:((float64\:"Everything in float64, also norms, rotary tables and softmax"
float32\:"Everything in float32"
bfloat16\:"Products in bfloat16; norms, softmax, main weights and optimizer in float32"))' \
'--device=[cpu, cuda, or cuda\:INDEX]:DEVICE:_default' \
'--pack-tokens=[Tokens of rows that are computed at once; 0 computes row by row]:TOKENS:_default' \
'--context-tolerance=[Own against in the row\: largest difference of a token \[default\: 1e-9, 1e-4 or 0.25 in float64, float32 or bfloat16\]]:X:_default' \
'--tolerance=[Captured against own\: largest difference of a token \[default\: 0.001, or 1 for models of 16 bits\]]:X:_default' \
'--mean-tolerance=[Captured against own\: largest mean difference of a generation \[default\: 0.0001, or 0.05 for models of 16 bits\]]:X:_default' \
'--weight-version=[Hold only what these weights sampled against what was captured]:N:_default' \
'--top=[Show this many disagreements, worst first]:N:_default' \
'--fail-on=[Least severity of a disagreement that makes the exit code 1; captured ones are warnings]:SEVERITY:((never\:"No finding does"
error\:"Wrong evidence only"
warning\:"Whatever masks, too"))' \
'--format=[How results are printed on stdout\: human, json, jsonl, or csv]:FORMAT:((human\:"For reading; not stable"
json\:"One versioned JSON document"
jsonl\:"One JSON object per item and line"
csv\:"A table with a header line"))' \
'--color=[When to colour\: auto, always, or never; NO_COLOR is honoured]:WHEN:((auto\:"On a terminal, unless NO_COLOR is set"
always\:"Always"
never\:"Never"))' \
'-j+[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--jobs=[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--assume-complete[Take sources that cannot tell whether calls were lost as complete]' \
'(-v --verbose)-q[Say only what is asked for; exit codes stay]' \
'(-v --verbose)--quiet[Say only what is asked for; exit codes stay]' \
'*-v[Log what is being done; twice for details]' \
'*--verbose[Log what is being done; twice for details]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
':source -- A rows directory or an archive:_files' \
&& ret=0
;;
(completions)
_arguments "${_arguments_options[@]}" : \
'--format=[How results are printed on stdout\: human, json, jsonl, or csv]:FORMAT:((human\:"For reading; not stable"
json\:"One versioned JSON document"
jsonl\:"One JSON object per item and line"
csv\:"A table with a header line"))' \
'--color=[When to colour\: auto, always, or never; NO_COLOR is honoured]:WHEN:((auto\:"On a terminal, unless NO_COLOR is set"
always\:"Always"
never\:"Never"))' \
'-j+[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--jobs=[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'(-v --verbose)-q[Say only what is asked for; exit codes stay]' \
'(-v --verbose)--quiet[Say only what is asked for; exit codes stay]' \
'*-v[Log what is being done; twice for details]' \
'*--verbose[Log what is being done; twice for details]' \
'-h[Print help]' \
'--help[Print help]' \
'-V[Print version]' \
'--version[Print version]' \
':shell -- Shell to complete for:(bash elvish fish powershell zsh)' \
&& ret=0
;;
(man)
_arguments "${_arguments_options[@]}" : \
'--format=[How results are printed on stdout\: human, json, jsonl, or csv]:FORMAT:((human\:"For reading; not stable"
json\:"One versioned JSON document"
jsonl\:"One JSON object per item and line"
csv\:"A table with a header line"))' \
'--color=[When to colour\: auto, always, or never; NO_COLOR is honoured]:WHEN:((auto\:"On a terminal, unless NO_COLOR is set"
always\:"Always"
never\:"Never"))' \
'-j+[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--jobs=[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'(-v --verbose)-q[Say only what is asked for; exit codes stay]' \
'(-v --verbose)--quiet[Say only what is asked for; exit codes stay]' \
'*-v[Log what is being done; twice for details]' \
'*--verbose[Log what is being done; twice for details]' \
'-h[Print help]' \
'--help[Print help]' \
'-V[Print version]' \
'--version[Print version]' \
'::page -- Command to print the page of; without it, the page of forestctl itself:_default' \
&& ret=0
;;
(generated)
_arguments "${_arguments_options[@]}" : \
'--format=[How results are printed on stdout\: human, json, jsonl, or csv]:FORMAT:((human\:"For reading; not stable"
json\:"One versioned JSON document"
jsonl\:"One JSON object per item and line"
csv\:"A table with a header line"))' \
'--color=[When to colour\: auto, always, or never; NO_COLOR is honoured]:WHEN:((auto\:"On a terminal, unless NO_COLOR is set"
always\:"Always"
never\:"Never"))' \
'-j+[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'--jobs=[Worker threads; 0 means one per core. Results are the same bytes for any number]:N:_default' \
'(-v --verbose)-q[Say only what is asked for; exit codes stay]' \
'(-v --verbose)--quiet[Say only what is asked for; exit codes stay]' \
'*-v[Log what is being done; twice for details]' \
'*--verbose[Log what is being done; twice for details]' \
'-h[Print help]' \
'--help[Print help]' \
'-V[Print version]' \
'--version[Print version]' \
'::root -- Repository root:_files' \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
":: :_forestctl__subcmd__help_commands" \
"*::: :->help" \
&& ret=0

    case $state in
    (help)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:forestctl-help-command-$line[1]:"
        case $line[1] in
            (ingest)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(validate)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(select)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(inspect)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(ls)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(show)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(why)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(diff)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(build-rows)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(du)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(report)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(cleanup-plan)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(config)
_arguments "${_arguments_options[@]}" : \
":: :_forestctl__subcmd__help__subcmd__config_commands" \
"*::: :->config" \
&& ret=0

    case $state in
    (config)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:forestctl-help-config-command-$line[1]:"
        case $line[1] in
            (check)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(show)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
        esac
    ;;
esac
;;
(doctor)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(step)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(audit-logprobs)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(completions)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(man)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(generated)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
        esac
    ;;
esac
;;
        esac
    ;;
esac
}

(( $+functions[_forestctl_commands] )) ||
_forestctl_commands() {
    local commands; commands=(
'ingest:Read captures into an archive' \
'validate:Prove an archive\: digests, lengths, lineage, completeness' \
'select:Choose the calls that train, with a verdict and reason for every rollout' \
'inspect:Browse rollouts, their calls and tokens on a full screen' \
'ls:List rollouts with verdict, reward, advantage, and tokens' \
'show:Show one rollout as a tree\: calls, roots, branches, rows, and findings' \
'why:Say why a rollout, a call, or a token trains or does not, by evidence and rule' \
'diff:Compare two policies on one archive, or two archives, rollout by rollout' \
'build-rows:Turn selected calls into training rows, with masks, padding, and advantages' \
'du:How often rows repeat their tokens, and what a step gains by computing each prefix once' \
'report:Write one page about an archive\: data flow, calls to rows, compaction, batch size, distributions' \
'cleanup-plan:List staging keys that may be removed, and those that must stay' \
'config:Check a NeMo-RL configuration for forest training, or show what it settles' \
'doctor:Tell what is installed, what is missing, and the command that mends it' \
'step:Run GRPO optimizer steps on rows' \
'audit-logprobs:Compare log-probabilities\: captured, under each call'\''s own context, and in rows' \
'completions:Print shell completions' \
'man:Print a man page' \
'generated:Write the generated files of the repository' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'forestctl commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__audit-logprobs_commands] )) ||
_forestctl__subcmd__audit-logprobs_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl audit-logprobs commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__build-rows_commands] )) ||
_forestctl__subcmd__build-rows_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl build-rows commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__cleanup-plan_commands] )) ||
_forestctl__subcmd__cleanup-plan_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl cleanup-plan commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__completions_commands] )) ||
_forestctl__subcmd__completions_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl completions commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__config_commands] )) ||
_forestctl__subcmd__config_commands() {
    local commands; commands=(
'check:Report everything that keeps a file from forest training' \
'show:Print every setting of build-rows, and where its value comes from' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'forestctl config commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__config__subcmd__check_commands] )) ||
_forestctl__subcmd__config__subcmd__check_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl config check commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__config__subcmd__help_commands] )) ||
_forestctl__subcmd__config__subcmd__help_commands() {
    local commands; commands=(
'check:Report everything that keeps a file from forest training' \
'show:Print every setting of build-rows, and where its value comes from' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'forestctl config help commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__config__subcmd__help__subcmd__check_commands] )) ||
_forestctl__subcmd__config__subcmd__help__subcmd__check_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl config help check commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__config__subcmd__help__subcmd__help_commands] )) ||
_forestctl__subcmd__config__subcmd__help__subcmd__help_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl config help help commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__config__subcmd__help__subcmd__show_commands] )) ||
_forestctl__subcmd__config__subcmd__help__subcmd__show_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl config help show commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__config__subcmd__show_commands] )) ||
_forestctl__subcmd__config__subcmd__show_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl config show commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__diff_commands] )) ||
_forestctl__subcmd__diff_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl diff commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__doctor_commands] )) ||
_forestctl__subcmd__doctor_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl doctor commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__du_commands] )) ||
_forestctl__subcmd__du_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl du commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__generated_commands] )) ||
_forestctl__subcmd__generated_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl generated commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__help_commands] )) ||
_forestctl__subcmd__help_commands() {
    local commands; commands=(
'ingest:Read captures into an archive' \
'validate:Prove an archive\: digests, lengths, lineage, completeness' \
'select:Choose the calls that train, with a verdict and reason for every rollout' \
'inspect:Browse rollouts, their calls and tokens on a full screen' \
'ls:List rollouts with verdict, reward, advantage, and tokens' \
'show:Show one rollout as a tree\: calls, roots, branches, rows, and findings' \
'why:Say why a rollout, a call, or a token trains or does not, by evidence and rule' \
'diff:Compare two policies on one archive, or two archives, rollout by rollout' \
'build-rows:Turn selected calls into training rows, with masks, padding, and advantages' \
'du:How often rows repeat their tokens, and what a step gains by computing each prefix once' \
'report:Write one page about an archive\: data flow, calls to rows, compaction, batch size, distributions' \
'cleanup-plan:List staging keys that may be removed, and those that must stay' \
'config:Check a NeMo-RL configuration for forest training, or show what it settles' \
'doctor:Tell what is installed, what is missing, and the command that mends it' \
'step:Run GRPO optimizer steps on rows' \
'audit-logprobs:Compare log-probabilities\: captured, under each call'\''s own context, and in rows' \
'completions:Print shell completions' \
'man:Print a man page' \
'generated:Write the generated files of the repository' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'forestctl help commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__help__subcmd__audit-logprobs_commands] )) ||
_forestctl__subcmd__help__subcmd__audit-logprobs_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl help audit-logprobs commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__help__subcmd__build-rows_commands] )) ||
_forestctl__subcmd__help__subcmd__build-rows_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl help build-rows commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__help__subcmd__cleanup-plan_commands] )) ||
_forestctl__subcmd__help__subcmd__cleanup-plan_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl help cleanup-plan commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__help__subcmd__completions_commands] )) ||
_forestctl__subcmd__help__subcmd__completions_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl help completions commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__help__subcmd__config_commands] )) ||
_forestctl__subcmd__help__subcmd__config_commands() {
    local commands; commands=(
'check:Report everything that keeps a file from forest training' \
'show:Print every setting of build-rows, and where its value comes from' \
    )
    _describe -t commands 'forestctl help config commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__help__subcmd__config__subcmd__check_commands] )) ||
_forestctl__subcmd__help__subcmd__config__subcmd__check_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl help config check commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__help__subcmd__config__subcmd__show_commands] )) ||
_forestctl__subcmd__help__subcmd__config__subcmd__show_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl help config show commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__help__subcmd__diff_commands] )) ||
_forestctl__subcmd__help__subcmd__diff_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl help diff commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__help__subcmd__doctor_commands] )) ||
_forestctl__subcmd__help__subcmd__doctor_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl help doctor commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__help__subcmd__du_commands] )) ||
_forestctl__subcmd__help__subcmd__du_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl help du commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__help__subcmd__generated_commands] )) ||
_forestctl__subcmd__help__subcmd__generated_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl help generated commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__help__subcmd__help_commands] )) ||
_forestctl__subcmd__help__subcmd__help_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl help help commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__help__subcmd__ingest_commands] )) ||
_forestctl__subcmd__help__subcmd__ingest_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl help ingest commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__help__subcmd__inspect_commands] )) ||
_forestctl__subcmd__help__subcmd__inspect_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl help inspect commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__help__subcmd__ls_commands] )) ||
_forestctl__subcmd__help__subcmd__ls_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl help ls commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__help__subcmd__man_commands] )) ||
_forestctl__subcmd__help__subcmd__man_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl help man commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__help__subcmd__report_commands] )) ||
_forestctl__subcmd__help__subcmd__report_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl help report commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__help__subcmd__select_commands] )) ||
_forestctl__subcmd__help__subcmd__select_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl help select commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__help__subcmd__show_commands] )) ||
_forestctl__subcmd__help__subcmd__show_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl help show commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__help__subcmd__step_commands] )) ||
_forestctl__subcmd__help__subcmd__step_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl help step commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__help__subcmd__validate_commands] )) ||
_forestctl__subcmd__help__subcmd__validate_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl help validate commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__help__subcmd__why_commands] )) ||
_forestctl__subcmd__help__subcmd__why_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl help why commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__ingest_commands] )) ||
_forestctl__subcmd__ingest_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl ingest commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__inspect_commands] )) ||
_forestctl__subcmd__inspect_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl inspect commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__ls_commands] )) ||
_forestctl__subcmd__ls_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl ls commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__man_commands] )) ||
_forestctl__subcmd__man_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl man commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__report_commands] )) ||
_forestctl__subcmd__report_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl report commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__select_commands] )) ||
_forestctl__subcmd__select_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl select commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__show_commands] )) ||
_forestctl__subcmd__show_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl show commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__step_commands] )) ||
_forestctl__subcmd__step_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl step commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__validate_commands] )) ||
_forestctl__subcmd__validate_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl validate commands' commands "$@"
}
(( $+functions[_forestctl__subcmd__why_commands] )) ||
_forestctl__subcmd__why_commands() {
    local commands; commands=()
    _describe -t commands 'forestctl why commands' commands "$@"
}

if [ "$funcstack[1]" = "_forestctl" ]; then
    _forestctl "$@"
else
    compdef _forestctl forestctl
fi
