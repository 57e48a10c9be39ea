"""The launch arguments that can touch the data of a run, and what the audit does with each, for all lineages.

Every argument of the programs below whose name can touch data is in exactly one of these tables. An argument that is in
no table, such as a fork's, is named in the answer and lowers its level if its name can touch data.

Refused are, among others, `--mock-data`, `--sft`, a `--dataloader-type` other than `single`, phases, curricula, index
files (`--train-doc-idx-path`), skipped iterations whose samples were not counted (`--skip-train-iteration-range`), span
masking, Retro, images. BERT, T5, retrieval models, Retro, models of images and classifiers are refused too, by the
names of their weights (`weights.py`): in the checkpoint's file, in `.metadata` beside it, or as the folders of a zarr
checkpoint.

Source: the argument parsers and config classes of Megatron-LM 1.0 to megatron-core 0.19 and its branch dev (d48bd6be),
bigscience-workshop/Megatron-DeepSpeed (main and its branches no-shuffling-option and new-dataset),
deepspeedai/Megatron-DeepSpeed (main), EleutherAI/gpt-neox (main and its branch adding_replay).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Refusal:
    """An argument that changes Megatron's usual order into one that cannot be rebuilt.

    Attributes:
        reason: what the run read instead.
        usual: values, beside the empty ones, that keep the usual order.
    """

    reason: str
    usual: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Pointer:
    """An argument that decides part of what was read, and of which the checkpoint holds no more than the value.

    Attributes:
        why: what it decides.
        remedy: what binds it.
        usual: values, beside the empty ones, that decide nothing.
    """

    why: str
    remedy: str
    usual: tuple[Any, ...] = ()


_VISION: Final = Refusal("the run read images and text, not the samples of a GPT data set")
_VISION_ALONE: Final = Refusal("the run read images, not the samples of a GPT data set")
_RETRO: Final = Refusal("Retro reads chunks with their neighbours")
_RETRIEVAL: Final = Refusal("a retrieval model reads blocks with their titles")
_INDEX_FILES: Final = Refusal("the order was given as files")
_SKIPPED: Final = Refusal(
    "the reader skipped these iterations without counting their samples, so every later step read other samples"
)
_CURRICULUM: Final = Refusal("the curriculum truncates samples")
_SPANS: Final = Refusal("spans of each sample are masked, and samples have another length")
_PACKED: Final = Refusal("samples are packed in another order")
_REGROUPED: Final = Refusal("samples are regrouped by length")
_PAIRS: Final = Refusal("the run read pairs of samples or samples with labels")

REFUSED: Final[Mapping[str, Refusal]] = {
    # made-up data, or data that another program reads
    "mock_data": Refusal("the run read made-up data"),
    "use_dataset_only": Refusal("an external trainer read the data set in another order"),
    "perform_rl_step": Refusal("reinforcement learning reads no corpus by this order"),
    # another order of the same samples
    "dataloader_type": Refusal("the order of another sampler is not known", usual=("single",)),
    "no_shuffle": Refusal("samples are read unshuffled"),
    "new_dataset": Refusal("the run began a data set from its first sample midway"),
    "phase_transition_iterations": Refusal("each phase builds a data order of its own"),
    "train_idx_path": _INDEX_FILES,
    "train_doc_idx_path": _INDEX_FILES,
    "train_sample_idx_path": _INDEX_FILES,
    "train_shuffle_idx_path": _INDEX_FILES,
    "train_desc_path": _INDEX_FILES,
    "is_replay_enabled": Refusal("samples of an earlier run are mixed in"),
    "replay_config": Refusal("samples of an earlier run are mixed in"),
    # iterations that no sample was counted for
    "skip_train_iteration_range": _SKIPPED,  # bigscience; ranges that are done are removed: an empty queue says so
    "train_range_to_skip": _SKIPPED,  # argonne-lcf
    "train_iters_to_skip": _SKIPPED,  # argonne-lcf
    # samples that are cut, chosen, masked, packed
    "curriculum_learning": _CURRICULUM,
    "curriculum_learning_legacy": _CURRICULUM,
    "data_efficiency_curriculum_learning": Refusal("the curriculum chooses samples by difficulty"),
    "data_efficiency": Refusal("the curriculum chooses samples by difficulty"),
    "noise_density": _SPANS,
    "mean_noise_span_length": _SPANS,
    "sft": Refusal("conversations are packed in another order"),
    "finetune_hf_dataset": Refusal("the run read a data set of Hugging Face, not a .bin/.idx pair"),
    "use_varlen_dataset": _PACKED,
    "packing_buffer_size": _PACKED,
    "use_packed_sequence": _PACKED,
    "hybrid_context_parallel": _REGROUPED,
    "dynamic_context_parallel": _REGROUPED,
    "sequence_packing_scheduler": _REGROUPED,
    "pack_impl": Refusal("samples are packed in another order", usual=("packed",)),
    "dataset_impl": Refusal("the run read another kind of data set", usual=("gpt2",)),
    "train_impl": Refusal("the run was trained on preferences, not on a corpus", usual=("normal",)),
    "train_mtf": Refusal("prompts and answers are packed in another order"),
    "soft_prompt_tuning": Refusal("a prompt was trained, not a model"),
    "label_data_paths": _PAIRS,
    "train_label_data_paths": _PAIRS,
    "train_reward_data_paths": _PAIRS,
    "pos_train_data_paths": _PAIRS,
    "neg_train_data_paths": _PAIRS,
    "pos_train_label_data_paths": _PAIRS,
    "neg_train_label_data_paths": _PAIRS,
    # models that are not GPT
    "decoder_seq_length": Refusal("an encoder-decoder reads samples of another form"),
    "retro_project_dir": _RETRO,
    "retro_workdir": _RETRO,
    "retro_add_retriever": _RETRO,
    "titles_data_path": _RETRIEVAL,
    "evidence_data_path": _RETRIEVAL,
    "ict_head_size": _RETRIEVAL,
    "biencoder_shared_query_context_model": _RETRIEVAL,
    "vision_pretraining": _VISION_ALONE,
    "language_model_type": _VISION,
    "vision_model_type": _VISION,
    "dataset_config": _VISION,
    "dataset_provider": _VISION,
    "prompt_path": _VISION,
    "dataloader_seq_length": _VISION,
}
"""Arguments that change Megatron's usual order, with the reason why the order cannot be rebuilt."""

POINTERS: Final[Mapping[str, Pointer]] = {
    "fim_data": Pointer(
        "Fill-in-the-middle moved tokens within documents, by random numbers that nothing recorded; which documents "
        "were read holds.",
        "No input binds it; take the answer for documents, not for tokens.",
    ),
    "fim_rate": Pointer(
        "Fill-in-the-middle moved tokens within documents, by random numbers that nothing recorded; which documents "
        "were read holds.",
        "No input binds it; take the answer for documents, not for tokens.",
    ),
    "per_dataset_sequences_path": Pointer(
        "The run took the number of sequences of each data path from this file, not from the .idx files.",
        "Compare the file with the .idx files, then give `data` in megatron-run.yaml.",
    ),
    "override_ckpt_iteration": Pointer(
        "The run continued from another iteration than its checkpoint's, so samples were read twice or not at all.",
        "Give `iteration` or `consumed_samples` in megatron-run.yaml.",
    ),
}
"""Arguments that decide part of what was read and that the checkpoint holds by name alone."""

READ: Final = frozenset({
    "data_path", "train_data_path", "data_args_path", "per_split_data_args_path", "split", "seed", "seq_length",
    "global_batch_size", "step_batch_size_schedule", "rampup_batch_size", "train_samples", "train_iters",
    "iterations_to_skip", "consumed_train_samples", "data_cache_path", "mid_level_dataset_surplus",
    "add_extra_token_to_sequence", "data_impl", "renormalize_blend_weights", "train_data_exact_num_epochs",
    "train_weighted_split_paths", "train_weighted_split_paths_path", "train_data_paths", "train_data_weights",
    "weight_by_num_documents", "weighted_sampler_alpha", "train_batch_size", "train_epochs", "model_type",
    "encoder_seq_length", "allow_chopped", "decrease_batch_size_if_needed",
})  # fmt: skip
"""Arguments that decide the order and that the audit reads (`arguments.py`, `recognise.py`) or compares."""

HARMLESS: Final = frozenset({
    # how the same samples reach the devices
    "micro_batch_size", "batch_size", "data_parallel_size", "data_sharding", "dataloader_fast_cache_load",
    "dataloader_defer_npy_index_mmap", "num_dataset_builder_threads", "repeated_dataloader",
    "train_micro_batch_size_per_gpu", "exit_signal_handler_for_dataloader", "deepspeed_dataloader", "dataloader_save",
    "aml_data_download_path", "communication_data_type", "data_types", "batch_p2p_comm", "batch_p2p_sync",
    "sequence_parallel", "sequence_parallel_size", "split_transformers", "pipeline_model_parallel_split_rank",
    "data_parallel_sharding_strategy", "data_parallel_random_init", "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split", "max_seqlen_per_dp_cp_rank", "variable_seq_lengths",
    "ds_sequence_parallel_size", "force_ds_sequence_parallel", "ds_sequence_parallel_fpdt",
    "ds_sequence_parallel_fpdt_chunk_size", "ds_sequence_parallel_fpdt_offloading", "tp_comm_split_ag",
    "tp_comm_split_rs", "muon_split_qkv", "use_new_dataloader_path", "thd_max_packed_sequences",
    "pad_packed_seq_alignment",
    # what is computed of the same tokens
    "create_attention_mask_in_dataloader", "dataloader_inter_document_masking", "inter_document_masking",
    "allow_ambiguous_pad_tokens", "calculate_per_token_loss", "no_calculate_per_token_loss",
    "rotary_seq_len_interpolation_factor", "batch_invariant_mode", "batch_invariant_backend", "return_data_index",
    "return_document_ids", "original_model_sample_prob", "hard_sample_th",
    # counters and records of what was done
    "consumed_valid_samples", "consumed_train_tokens", "skipped_train_samples", "curriculum_seqlen", "train_tokens",
    "actual_seq_length", "skip_train", "num_samples", "data_efficiency_curriculum_learning_numel",
    "data_efficiency_curriculum_learning_seqlen_type",
    # other kinds of training, which other arguments turn on
    "sample_rate", "short_seq_prob", "retriever_seq_length", "data_per_class_fraction", "use_one_sent_docs",
    "block_data_path", "indexer_batch_size", "indexer_log_interval", "fim_eod_token", "fim_fragment_rate",
    "fim_middle_token", "fim_no_prefix", "fim_pad_token", "fim_prefix_token", "fim_split_sample", "fim_spm_rate",
    "fim_suffix_token", "finetune_data_files", "finetune_data_split", "sft_mock_dataset_config_json",
    "varlen_mock_dataset_config_json", "packing_seq_length", "packing_knapsack_algorithm", "dataloader_seed",
    "total_seq_length", "image_seq_length", "image_token_id", "sample_input_file", "sample_output_file",
    "maximum_tokens", "online_dataserver_ips", "online_dataserver_ports", "gradient_noise_scale_n_batches",
    "image_break_token", "allow_cross_sample_attention", "apply_data_augment", "only_keep_samples_with_img",
    "class_token_len", "disable_vision_class_token", "drop_vision_class_token", "pixel_shuffle", "special_tokens",
    "efficient_video_sampling_variant", "sound_batch_split", "max_tokens_to_oom", "extra_sentinel_tokens",
    "tiktoken_num_special_tokens", "tiktoken_special_tokens", "skip_csv", "skip_plot", "num_speculative_tokens",
    "mem_batch_size", "mem_infer_seq_len", "skip_num_attn_layer_constraint", "skip_total_layer_constraint",
    "add_skipping", "force_router_skip", "no_attn_skip", "window_attn_skip_freq", "skip_prompt_log_probs",
    "save_tokens_per_expert_interval", "offset_sampling_seed_by_dp_rank", "replay_data_paths", "replay_data_weights",
    "replay_data_to_idx_paths", "replay_fraction", "replay_idx_offsets", "replay_idx_paths_prefixes",
    "replay_reshuffle_idx", "replay_seed", "iter_per_epoch", "drop_last_partial_validation_sequence",
    "dynamic_resolution_no_truncate",
})  # fmt: skip
"""Arguments whose names can touch data and that decide no part of the order."""

_HARMLESS_FAMILIES: Final = re.compile(
    r"(?:valid|validation|test|eval|neg_valid|neg_test|pos_valid|pos_test|inference|rl|grpo|moe|mtp|lr|log|wandb|"
    r"tensorboard|dsa|retro|dino|tokenizer|ckpt|dist_ckpt|flight_recorder|cuda_graph|fp8|fp4|mamba|nccl|export|tile|"
    r"profile|memory|megatron_fsdp|logits_load|vision|recompute)_.*"
)
"""Families of arguments, by the beginning of their names, that decide no part of the order of the training data."""

_CAN_TOUCH_DATA: Final = re.compile(
    r"(?:^|_)(?:data\w*|blend\w*|\w*sampl\w*|\w*shuffl\w*|seeds?|epochs?|splits?|tokens?|seqs?|seqlen\w*|sequences?|"
    r"batch\w*|curricul\w*|skip\w*|consum\w*|idx|index|indices|indexer|corpus|corpora|mix|mixes|mixtures?|mixing|"
    r"packs?|packed|packing|docs?|documents?|\w*loader|fim|mock\w*|replay\w*|subset\w*|dedup\w*|repeat\w*|truncat\w*)(?:_|$)"
)
"""Names that can touch data."""

_EMPTY: Final[tuple[Any, ...]] = (None, False, 0, 0.0, "", [], (), {})


def is_set(value: Any, usual: tuple[Any, ...] = ()) -> bool:
    """Whether an argument was given: its value is not empty, not a usual one, and not a section that is turned off."""
    if isinstance(value, Mapping) and "enabled" in value:
        return is_set(value["enabled"])
    return not any(type(value) is type(each) and value == each for each in (*_EMPTY, *usual))


def unknown_arguments(held: Mapping[str, Any]) -> list[str]:
    """The arguments that are set, in no table, and named as if they touched data."""
    known = REFUSED.keys() | POINTERS.keys() | READ | HARMLESS
    return sorted(
        name
        for name, value in held.items()
        if isinstance(name, str)
        and name not in known
        and _CAN_TOUCH_DATA.search(name)
        and not _HARMLESS_FAMILIES.fullmatch(name)
        and is_set(value)
    )
