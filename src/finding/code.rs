//! The one table of codes; `docs/codes.md` is made from it.

use std::fmt;

use serde::{Serialize, Serializer};

use super::Severity::{self, Error, Warning};

/// Which stage a code belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// Reading sources.
    Ingest,
    /// Proving what was captured.
    Validate,
    /// Images and videos of calls. They invalidate what is selected, not what is left out.
    Media,
    /// Choosing calls, masking rollouts, dropping groups.
    Select,
    /// Files of forestctl itself: archives, rows, checkpoints.
    Files,
    /// Log-probabilities of generations, held against each other.
    Audit,
}

impl Family {
    /// All families in document order.
    pub const ALL: [Family; 6] = [
        Family::Ingest,
        Family::Validate,
        Family::Media,
        Family::Select,
        Family::Files,
        Family::Audit,
    ];

    /// Heading for the reference.
    pub fn title(self) -> &'static str {
        match self {
            Family::Ingest => "Ingest",
            Family::Validate => "Validate",
            Family::Media => "Media",
            Family::Select => "Select and mask",
            Family::Files => "Archives and rows",
            Family::Audit => "Log-probabilities",
        }
    }
}

macro_rules! codes {
    ($($family:ident { $($variant:ident $word:literal $severity:ident $summary:literal => $help:literal;)* })*) => {
        /// A stable code. Where upstream has a word for the failure, the code is that word.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $($(#[doc = $summary] $variant,)*)*
        }

        impl Code {
            /// Every code, in table order.
            pub const ALL: &'static [Code] = &[$($(Code::$variant,)*)*];

            /// The stable word.
            pub fn as_str(self) -> &'static str {
                match self { $($(Code::$variant => $word,)*)* }
            }

            /// The code of a word.
            pub fn parse(word: &str) -> Option<Code> {
                match word { $($($word => Some(Code::$variant),)*)* _ => None }
            }

            /// Stage that reports it.
            pub fn family(self) -> Family {
                match self { $($(Code::$variant)|* => Family::$family,)* }
            }

            /// Default severity.
            pub fn severity(self) -> Severity {
                match self { $($(Code::$variant => $severity,)*)* }
            }

            /// What it means, in one sentence.
            pub fn summary(self) -> &'static str {
                match self { $($(Code::$variant => $summary,)*)* }
            }

            /// What to do about it.
            pub fn help(self) -> &'static str {
                match self { $($(Code::$variant => $help,)*)* }
            }
        }
    };
}

codes! {
    Ingest {
        MalformedJson "malformed_json" Error "A line is not JSON."
            => "Look at the line in the source; a torn last line means that the writer was killed. Capture again, or ingest without that scope.";
        MalformedRecord "malformed_record" Error "A line is JSON, but not a record of its kind."
            => "Compare the named field with the format in docs/format.md; a record with unknown keys comes from another version of the capture.";
        MalformedReceipt "malformed_receipt" Error "A receipt or ledger is not what its schema asks for."
            => "Write the receipt again from the ledger, or capture again.";
        MalformedMedia "malformed_media" Error "A media line lacks the flags or the digest of a call."
            => "Each line needs the scope, model_call_id, media_present, media_has_frames and media_metadata_digest.";
        MalformedRollout "malformed_rollout" Error "A rollouts line lacks what identifies a logical rollout."
            => "Each line needs group_id, rollout_id, slot, group_size and capture_key, or Gym's _ng_task_index and _ng_rollout_index.";
        LineTooLong "line_too_long" Error "A line is longer than any record can be."
            => "Records end with a line break; look for a file that was joined or written without them.";
        UnreadableSource "unreadable_source" Error "A source file cannot be decompressed or read to its end."
            => "The file was cut or damaged; copy it again. What was read before that point is in the archive.";
        QuarantineFull "quarantine_full" Error "A source has more unreadable lines than the quarantine lists."
            => "The file is probably not a capture, or is damaged as a whole.";
        SupersededAttempt "superseded_attempt" Warning "An earlier attempt at a rollout was captured, and a later one fills its slot."
            => "Nothing to do: only the attempt that the rollout names is archived.";
        MalformedSidecar "malformed_sidecar" Error "A media sidecar is not a safetensors file whose tensors fill it end to end."
            => "The file was cut, compressed or written by another tool; copy or write it again.";
        OrphanTensor "orphan_tensor" Error "A media tensor belongs to no call of these sources."
            => "Tensors are named <call_id>/<field>. Add the staged*.jsonl file that holds the call.";
        TokenIdOutOfRange "token_id_out_of_range" Error "A token id does not fit 32 bits."
            => "No tokenizer has such ids; look for a corrupted capture.";
        ConflictingRecord "conflicting_record" Error "Two different records claim one identity."
            => "Keep the one that the receipt commits to. Ingest into a new archive, or replace this one with --force.";
        UnknownScope "unknown_scope" Error "A record belongs to no rollout of this source."
            => "Add the rollouts*.jsonl or receipts*.jsonl file that names this scope to the sources.";
        ConflictingStoreEntry "conflicting_store_entry" Error "A Gym store line differs from the digest in its state file, or two lines claim one call."
            => "The store changed after it was written; capture the rollout again.";
        TornStoreTail "torn_store_tail" Warning "The last line of a Gym store was cut while being written, and so was never acknowledged."
            => "Nothing to do when the rollout was retried; the dangling intent masks it otherwise.";
        StoreUnreadable "store_unreadable" Error "A Gym store cannot be read."
            => "A line in the middle, not at the end, is broken, or the state file disagrees with the store. Capture the rollout again.";
        UnresolvedParent "unresolved_parent" Warning "No verified parent could be found for a call that continues a conversation."
            => "The call cannot be placed in the forest, so the rollout is masked. Upstream gives this word to requests whose history matched no captured call.";
        ParentDigestMismatch "parent_digest_mismatch" Error "The prompt of a call does not begin with the tokens of its recorded parent."
            => "Prompt and parent were tokenised differently, or one was changed. The rollout is masked.";
    }
    Validate {
        UnsupportedSchema "unsupported_schema" Error "The capture schema is not one that this version reads."
            => "forestctl reads capture schema 2 (key rollout_id) and 3 (key capture_key). There is no migration of staged checkpoints: capture again with a paired version.";
        UnsupportedDigest "unsupported_digest" Error "The digest version is not one that this version reads."
            => "forestctl reads digest version 2. Capture again with a paired version, or use a newer forestctl.";
        UnsupportedExtrasDigest "unsupported_extras_digest" Error "The extras digest version is not one that this version reads."
            => "forestctl reads extras digest version 1. Capture again with a paired version, or use a newer forestctl.";
        UnsupportedFingerprint "unsupported_fingerprint" Error "The fingerprint version is not one that this version reads."
            => "forestctl reads fingerprint version 2, and 0 where none were recorded. Capture again with a paired version, or use a newer forestctl.";
        UnsupportedReplay "unsupported_replay" Error "A ledger persisted the items of a ReplayContext instead of a ReplaySummary."
            => "An experimental build of schema 3 wrote it. There is no migration of its ledgers: capture again with the paired release.";
        UnsupportedRecovery "unsupported_recovery" Error "A recovery checkpoint is among the sources: a run's state to resume from, not a capture."
            => "Leave the file out, and ingest the staged records, receipts and rollouts of the run. There is no migration of checkpoints below schema 5.";
        RolloutFailed "rollout_failed" Warning "The receipt says why the capture of this rollout failed."
            => "The rollout is masked; its healthy siblings train. The reason is the capture's own word.";
        CapturePoisoned "capture_poisoned" Warning "The receipt marks the capture of this rollout as poisoned."
            => "The rollout is masked; its healthy siblings train.";
        EmptyManifest "empty_manifest" Error "A receipt that claims success commits to no call."
            => "The ledger was lost or written too early. Capture the rollout again.";
        DuplicateManifestRow "duplicate_manifest_row" Error "Two manifest rows name one call."
            => "The ledger was written twice. Rebuild the receipt from the ledger.";
        DuplicateStagingKey "duplicate_staging_key" Error "Two manifest rows name one staging key."
            => "Two calls would read the same staged tensors. Rebuild the receipt from the ledger.";
        RowCountMismatch "row_count_mismatch" Error "Staged records are missing for rows of the manifest."
            => "Add the missing staged*.jsonl file to the sources, or capture the rollout again.";
        DuplicateSnapshot "duplicate_snapshot" Error "One call was staged on several lines."
            => "Remove the repeated line; if the lines differ, capture the rollout again.";
        SnapshotIdentityMismatch "snapshot_identity_mismatch" Error "A manifest row has no staged record while a record that no row names is there."
            => "The record was stored under another call id. Capture the rollout again.";
        SnapshotOrderMismatch "snapshot_order_mismatch" Error "Snapshots are not in manifest order."
            => "Fetch snapshots by staging key, in manifest order.";
        WrongRollout "wrong_rollout" Error "A staged record names another capture scope than the receipt that commits to it."
            => "Records of two rollouts were mixed up. Capture both again.";
        WrongModelCallId "wrong_model_call_id" Error "Record and manifest row disagree on the call id."
            => "The record was changed after it was committed.";
        WrongParentCallId "wrong_parent_call_id" Error "Record and manifest row disagree on the parent."
            => "The record or the ledger was changed after the call was committed. Capture the rollout again.";
        WrongMode "wrong_mode" Error "Record and manifest row disagree on text or token_in."
            => "The record or the ledger was changed after the call was committed. Capture the rollout again.";
        WrongPrevLen "wrong_prev_len" Error "Record and manifest row disagree on prev_len."
            => "The record or the ledger was changed after the call was committed. Capture the rollout again.";
        WrongDeltaLen "wrong_delta_len" Error "Record and manifest row disagree on delta_len."
            => "The record or the ledger was changed after the call was committed. Capture the rollout again.";
        WrongCumLen "wrong_cum_len" Error "Record and manifest row disagree on cum_len."
            => "The record or the ledger was changed after the call was committed. Capture the rollout again.";
        WrongWeightVersion "wrong_weight_version" Error "Record and manifest row disagree on the weight version."
            => "The record or the ledger was changed after the call was committed. Capture the rollout again.";
        WrongDigest "wrong_digest" Error "Record and manifest row carry different call digests."
            => "The record was changed and signed again, or the ledger was. Capture the rollout again.";
        WrongExtrasDigest "wrong_extras_digest" Error "Record and manifest row carry different extras digests."
            => "Media or routes were changed after the call was committed. Capture the rollout again.";
        WrongChainHash "wrong_chain_hash" Error "Record and manifest row carry different chain hashes."
            => "The record or the ledger was changed after the call was committed. Capture the rollout again.";
        WrongCumulativeHash "wrong_cumulative_hash" Error "Record and manifest row carry different cumulative hashes."
            => "The record or the ledger was changed after the call was committed. Capture the rollout again.";
        WrongSchemaVersion "wrong_schema_version" Error "Record, manifest row and receipt disagree on the schema version."
            => "Do not mix captures of two schema versions in one receipt.";
        WrongDigestVersion "wrong_digest_version" Error "Record, manifest row and receipt disagree on the digest version."
            => "Do not mix captures of two digest versions in one receipt.";
        WrongExtrasDigestVersion "wrong_extras_digest_version" Error "Record, manifest row and receipt disagree on the extras digest version."
            => "Do not mix captures of two digest versions in one receipt.";
        InvalidSnapshot "invalid_snapshot" Error "A staged record breaks a rule of its own schema, so that no digest can be computed."
            => "The record was changed or written by another tool. Capture the rollout again.";
        CorruptDigest "corrupt_digest" Error "The tokens, masks or log-probabilities of a record do not give the digest that it carries."
            => "The record was changed after it was staged. Restore it from the staging storage, or capture the rollout again.";
        CorruptExtrasDigest "corrupt_extras_digest" Error "The extras of a record do not give the extras digest that it carries."
            => "Media or routes were changed after the call was staged. Restore them, or capture the rollout again.";
        MissingParent "missing_parent" Error "A call names a parent that the manifest does not hold."
            => "The parent's ledger row was lost. Capture the rollout again.";
        ParentLengthMismatch "parent_length_mismatch" Error "A call does not start where its parent ends."
            => "prev_len must equal the parent's cum_len. The ledger was changed; capture the rollout again.";
        LineageCycle "lineage_cycle" Error "Following parents comes back to the same call."
            => "The ledger was changed; capture the rollout again.";
        MissingTerminal "missing_terminal" Error "The receipt names no scored call, or one that it does not commit to."
            => "The scored call was not captured or not attributed. Capture the rollout again.";
        ChainHashMismatch "chain_hash_mismatch" Error "A call's tokens do not extend its parent's chain hash."
            => "The delta or an ancestor was changed after it was committed. Capture the rollout again.";
        InvalidMaskOrder "invalid_mask_order" Error "A delta's mask is not carry first, then generation."
            => "The record was assembled wrongly; no boundary between prompt and generation can be trusted.";
        EmptyGeneration "empty_generation" Error "A call holds no generated token."
            => "The engine returned nothing. Such a call cannot be trained; capture the rollout again.";
        CumulativeHashMismatch "cumulative_hash_mismatch" Error "The tokens from root to this call do not give its cumulative hash."
            => "A delta on the path was changed, or the chain was rebuilt wrongly. Capture the rollout again.";
        MissingReceipt "missing_receipt" Error "A capture scope has records but no receipt, so nothing says what was lost."
            => "Add the receipts*.jsonl file or the ledger of this scope to the sources.";
        ReceiptRewardMismatch "receipt_reward_mismatch" Warning "Receipt and rollout state different rewards; the rollout's is used."
            => "One of the two files may be stale. Ingest receipts and rollouts of the same run.";
        UncommittedRecord "uncommitted_record" Warning "A staged record is named by no manifest row: its acknowledgement was lost or is pending."
            => "The record never trains. Its failure or pending call says why.";
        UnaccountedCall "unaccounted_call" Error "The ledger loses track of a call: attempted and then never heard of, or committed and never attempted."
            => "A row was lost from the ledger. Capture the rollout again.";
        CapturePending "capture_pending" Warning "A call was admitted, and never acknowledged or failed."
            => "The worker may still have been writing when the run ended. The rollout is masked; its healthy siblings train.";
        CaptureFailed "capture_failed" Warning "The capture of a call failed."
            => "The rollout is masked; its healthy siblings train. The reason is the capture's own word.";
        CaptureCancelled "capture_cancelled" Warning "A committed call was cancelled and is not part of the selection."
            => "Nothing to do: the call is committed, and does not train unless it is selected, which would mask the rollout.";
        CompletionFailed "completion_failed" Warning "A call ended failed, unknown, or incomplete for another reason than its length."
            => "Selecting the call masks the rollout.";
        CompletenessUnknown "completeness_unknown" Warning "Nothing in this source tells whether calls were lost."
            => "Ingest the store with its .intents, .incomplete and .state.json files, or accept the risk with --assume-complete.";
        CaptureIncomplete "capture_incomplete" Warning "The Gym store says that calls of this rollout are missing."
            => "The rollout is masked; its healthy siblings train.";
        CompletionUnrecorded "completion_unrecorded" Warning "The source records no completion status for the selected calls."
            => "Accepted under returned_history, an error under all_captured. Length stops are unknown, so overlong filtering cannot act.";
        ClampedLogprob "clamped_logprob" Warning "A captured log-probability of -9999 or less is an engine's clamp of minus infinity."
            => "Kept as captured; every diagnostic treats it as minus infinity.";
        PositiveLogprob "positive_logprob" Warning "A captured log-probability is above zero."
            => "Rounding in the engine makes small ones; a large one points at a wrong capture.";
        EntryDigestMismatch "entry_digest_mismatch" Error "The tokens of a Gym store entry do not give the digest that it carries."
            => "The entry was changed after it was written. Capture the rollout again.";
    }
    Media {
        MediaFlagMismatch "media_flag_mismatch" Error "The media flags of a call disagree with the geometry that its extras commit to."
            => "The media line was changed, or belongs to another call. Capture the rollout again.";
        MediaMetadataMismatch "media_metadata_mismatch" Error "The extras of a call do not give its media metadata digest."
            => "The media line or the extras were changed. Capture the rollout again.";
        InvalidMediaGeometry "invalid_media_geometry" Error "The image geometry in the extras of a call is not what its layout asks for."
            => "cc_image_geometry holds prefix_digest and images, and each image offset, length, height, width, token_id and perhaps frames, all positive integers. Capture with a paired version.";
        MediaSpanOrder "media_span_order" Error "The spans of a call's media overlap or are out of order."
            => "The geometry was assembled wrongly. Capture the rollout again.";
        MediaSpanOutsidePrompt "media_span_outside_prompt" Error "A span of a call's media is not wholly inside its new prompt tokens."
            => "The span was moved, or counted from another token. Capture the rollout again.";
        MediaTokenMismatch "media_token_mismatch" Error "A token inside a span of media is not the one that stands for it."
            => "The span was moved, or the prompt rendered again after it was taken. Capture the rollout again.";
        MediaUncovered "media_uncovered" Error "A prompt token stands for media, and no occurrence of its call covers it."
            => "A root lists all of its media, a continuation all that is new. Capture the rollout again.";
        MediaNotNew "media_not_new" Error "A continuation lists media that an ancestor brought."
            => "A continuation brings only what is new. Capture the rollout again.";
        MediaRetainedChanged "media_retained_changed" Error "A continuation lists media of an ancestor with another geometry."
            => "Retained media do not change along a chain; a rewritten context is a new root. Capture the rollout again.";
        MediaPrefixMismatch "media_prefix_mismatch" Error "What the ancestors of a call brought does not give its prefix digest."
            => "Retained media were changed, dropped or added; for a root, the digest is that of an empty list. Capture the rollout again.";
        MissingMediaTensor "missing_media_tensor" Error "A call brings media, and a tensor of it is missing."
            => "Add the media/*.safetensors file that holds <call_id>/<field> to the sources, and look for it in quarantine.";
        UnexpectedMediaTensor "unexpected_media_tensor" Error "A tensor is there that nothing in its call asks for."
            => "The sidecar belongs to another capture, or the media line and extras were changed. Capture the rollout again.";
        InvalidMediaTensor "invalid_media_tensor" Error "A media tensor has another type, shape or length than its field has."
            => "media_imgs is [patches, 3*P*P] of F16, BF16 or F32, media_imgs_sizes [N, 2] and media_num_frames [N] of I32. Capture with a paired version.";
        MediaCountMismatch "media_count_mismatch" Error "A media tensor has another number of entries than its call has new occurrences."
            => "Sidecar and extras are of two captures. Capture the rollout again.";
        MediaSizeMismatch "media_size_mismatch" Error "Height or width of an occurrence differs between extras and tensors."
            => "Sidecar and extras are of two captures, or one was changed. Capture the rollout again.";
        MediaFrameMismatch "media_frame_mismatch" Error "The frames of an occurrence differ between extras and tensors."
            => "Sidecar and extras are of two captures, or one was changed. Capture the rollout again.";
        MediaSizeIndivisible "media_size_indivisible" Error "Height or width of an occurrence is no multiple of the patch size."
            => "The processor resizes to whole patches; the geometry is that of the original. Capture the rollout again.";
        MediaPatchMismatch "media_patch_mismatch" Error "The occurrences of a call have more or fewer patches than its pixels."
            => "An image or a frame was lost or added. Capture the rollout again.";
        MediaMergeMismatch "media_merge_mismatch" Error "Tokens of one rollout stand for different numbers of patches."
            => "One processor merges the same square of patches into each token. Capture the rollout again.";
        MediaFramesMixed "media_frames_mixed" Error "Some occurrences of a chain count frames, and others do not."
            => "Where one counts frames, all do, stills as 1. Capture with a paired version.";
        MediaDtypeMismatch "media_dtype_mismatch" Error "Pixels of one chain have two types."
            => "The processor was changed within an attempt. Capture the rollout again.";
        MediaPatchSizeMismatch "media_patch_size_mismatch" Error "Patches of one chain have two sizes."
            => "The processor was changed within an attempt. Capture the rollout again.";
    }
    Select {
        SelectionNotClosed "selection_not_closed" Warning "A selected call's parent is not selected."
            => "The returned history omits a call that a later one continues. The rollout is masked and nothing is added; return the complete accepted history, or use --policy all_captured.";
        FailedSelectedCall "failed_selected_call" Warning "A selected call failed, was cancelled, or ended for another reason than stop or length."
            => "The rollout is masked; its healthy siblings train.";
        MissingReward "missing_reward" Warning "The rollout has no finite reward."
            => "Score the rollout, or leave it out of the sources.";
        MissingLogprob "missing_logprob" Warning "A generated token has no log-probability; JSON writers turn NaN into null."
            => "The rollout is masked. Look for NaN in the engine's sampler.";
        MissingEvidence "missing_evidence" Error "The result names no accepted call."
            => "returned_history needs response.output or responses with the accepted generations, or ng_trajectory.turns[].model_calls or action_ids that name them. For captures without a history use --policy all_captured.";
        AmbiguousEvidence "ambiguous_evidence" Error "Several captured calls match one generation of the returned history."
            => "Keep native item ids in the returned history so that the calls can be told apart.";
        ContradictoryEvidence "contradictory_evidence" Error "Two pieces of evidence name different calls: native ids, content, references, or scored responses."
            => "The harness changed the text of an answer, mixed up ids, or references other calls than it returns.";
        DuplicatedEvidence "duplicated_evidence" Error "The returned history holds one captured generation twice."
            => "Return each accepted generation once.";
        UnmatchedEvidence "unmatched_evidence" Error "A generation of the returned history matches no captured call."
            => "The answer was rewritten by the harness, or its call was not captured.";
        PartialGeneration "partial_generation" Error "The returned history holds only part of a captured generation, or its items in another order."
            => "Return whole generations; items within one keep their order.";
        UnsupportedItem "unsupported_item" Error "The returned history holds a generated item of a type that is not supported."
            => "Assistant messages, reasoning and function calls are generated items.";
        SeveralSessions "several_sessions" Error "The result speaks of several sessions."
            => "One rollout has one session. Return a trajectory per rollout.";
        TerminalNotSelected "terminal_not_selected" Error "The scored call is not among the selected calls."
            => "The scored response must be part of the accepted history.";
        TerminalMismatch "terminal_mismatch" Warning "The receipt names another scored call than the returned result; the result's is used."
            => "One of the two is stale, or the framework attributed the reward to another call. Compare terminal_model_call_id with terminal_response_id.";
        UnattributedTerminal "unattributed_terminal" Error "Nothing says which captured call was scored."
            => "Return terminal_response_id, or the response with its id or content. Capture order is no witness.";
        MissingCompletion "missing_completion" Error "The completion status of a call is not recorded, while all_captured needs it or the receipt has that of others."
            => "Use --policy returned_history for captures without completion metadata; where only some is missing, capture the rollout again.";
        SelectorFailed "selector_failed" Error "The selector ended, or raised an error, instead of selecting."
            => "Its own stderr tells more. Try it on one rollout by hand.";
        SelectorTimeout "selector_timeout" Error "The selector gave no answer in time."
            => "Raise --selector-timeout, or look for what it waits for.";
        InvalidSelection "invalid_selection" Error "What the selector returned is no selection from the records that it was given."
            => "A selector returns a nonempty list of unique, unchanged records of its input, and the response id of the scored one among them.";
        NoVerifiedLayout "no_verified_layout" Warning "No logical owner of the group produced a verified input layout."
            => "The whole prompt group is dropped; each rollout says why it was masked.";
        TooFewValidRollouts "too_few_valid_rollouts" Warning "Fewer rollouts of the group have a verified layout than min_valid_fraction_per_group asks for."
            => "The whole prompt group is dropped; each rollout says why it was masked.";
        InconsistentGroup "inconsistent_group" Error "The rollouts of a group disagree on group size, or a slot is taken twice."
            => "Every slot of a prompt group appears once. Check rollouts*.jsonl.";
        IncompleteGroup "incomplete_group" Warning "A slot of the group has no rollout, as after a timeout."
            => "The whole prompt group is dropped: a group trains with all its rollouts. Nothing dispatches it again; raise the timeout, or add the rollouts to the sources.";
        RouteShapeMismatch "route_shape_mismatch" Error "Expert routes of one rollout differ in layers or top-k."
            => "Routes of two models were mixed; capture the rollout again.";
        InvalidRoute "invalid_route" Error "An expert-route envelope cannot be read."
            => "The envelope is nrlre1:<dtype>:<tokens>x<layers>x<topk>:<base64>.";
        Overlong "overlong" Warning "A selected generation stopped at a length limit and overlong filtering is on."
            => "The rollout's rows carry no loss. Raise the limit, or turn filtering off.";
        SeqLogprobError "seq_logprob_error" Warning "The pooled sequence error of the rollout is above its threshold."
            => "The rollout's rows carry no loss. Training and sampling disagree on its tokens; look at the error metrics.";
        EnvironmentMasked "environment_masked" Warning "The environment asked to mask this rollout (mask_sample)."
            => "Nothing to do: the environment judged its own sample invalid.";
    }
    Files {
        CorruptFile "corrupt_file" Error "A file of the archive or rows differs from its BLAKE3 in the manifest, or cannot be parsed."
            => "Restore the file from a copy, or ingest again with --force.";
        MissingTensor "missing_tensor" Error "A call refers to tensor data that no file of the archive holds as it says."
            => "Restore the archive from a copy, or ingest again with --force.";
        CorruptTensor "corrupt_tensor" Error "Tensor data in the archive differs from its BLAKE3, or cannot be read."
            => "Restore the file from a copy, or ingest again with --force.";
        InconsistentArchive "inconsistent_archive" Error "The archive contradicts itself: what it holds twice differs."
            => "It was changed after it was written. Restore it from a copy, or ingest again with --force.";
        UnlistedFile "unlisted_file" Error "A file of the archive is not listed in its manifest."
            => "Remove it, or ingest again with --force.";
        UnknownCode "unknown_code" Error "A newer forestctl set a line aside for a reason that this one has no code for."
            => "Validate with the forestctl that wrote the archive, or a newer one.";
    }
    Audit {
        RowSpanMismatch "row_span_mismatch" Error "A span of a row holds another generation, or other captured log-probabilities, than its call."
            => "Whatever wrote or changed the rows put the span in the wrong place. Build them again from the archive; if that does not help, it is a bug of forestctl.";
        RowContextMismatch "row_context_mismatch" Error "A generation has other log-probabilities in its row than under its own context."
            => "Look at the first token that differs. Where none does, compute with --pack-tokens 0 and with --dtype float64: what is left is no rounding.";
        CapturedLogprobMismatch "captured_logprob_mismatch" Warning "The captured log-probabilities of a generation are not those of the model under the same context."
            => "Compare weights, temperature, and number format of the engine with the model; --weight-version leaves out what other weights sampled.";
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl schemars::JsonSchema for Code {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Code".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let words: Vec<&str> = Code::ALL.iter().map(|c| c.as_str()).collect();
        schemars::json_schema!({ "type": "string", "enum": words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_unique_and_parse_back() {
        for &code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(code));
            assert!(code.as_str().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
            assert!(code.summary().ends_with('.') && code.help().ends_with('.'), "{code}");
        }
    }
}
