#include "trainer/deepspeed/keys.h"

#include <algorithm>

#include "trainer/settings/suggest.h"

namespace spillway::trainer {
namespace {

using enum Treatment;

constexpr std::string_view kPlanned = "the plan chooses the sizes and times of transfers (see spillway plan)";
constexpr std::string_view kAlways = "Spillway always does this";
constexpr std::string_view kShown =
    "the run folder holds metrics.jsonl and TensorBoard's files (docs/watching.md); --profile prints a table of times";
constexpr std::string_view kFolder = "these files are written to the run folder (--out)";
constexpr std::string_view kChecked = "has no counterpart here, and no result depends on it";
constexpr std::string_view kLossScale =
    "the loss scale begins at 2^16, is halved by each overflow and doubles after --loss-scale-window steps without one";
constexpr std::string_view kCheckpoints = "a checkpoint is saved whole and can be resumed with other ranks, ZeRO stages and placements";
constexpr std::string_view kOff = "false|null";

constexpr DeepspeedKey kKeys[] = {
    {"train_batch_size", read, "", ""},
    {"train_micro_batch_size_per_gpu", read, "", ""},
    {"gradient_accumulation_steps", read, "", ""},
    {"managed_gradient_accumulation", refused, "the trainer always manages accumulation", "true"},

    {"optimizer.type", read, "", ""},
    {"optimizer.params.*", read, "", ""},
    {"optimizer.legacy_fusion", noted, kChecked, ""},
    {"scheduler.type", read, "", ""},
    {"scheduler.params.*", read, "", ""},
    {"gradient_clipping", same, "gradient-clipping", ""},
    {"zero_allow_untested_optimizer", noted, kChecked, ""},
    {"zero_force_ds_cpu_optimizer", noted, "the optimizers on the CPU and on a GPU give the same results", ""},

    {"fp16.enabled", read, "", ""},
    {"fp16.auto_cast", noted, kAlways, ""},
    {"fp16.loss_scale", refused, "leave this key out: the loss scale is dynamic", "0|0.0"},
    {"fp16.initial_scale_power", noted, kLossScale, ""},
    {"fp16.loss_scale_window", read, "", ""},
    {"fp16.hysteresis", noted, kLossScale, ""},
    {"fp16.consecutive_hysteresis", noted, kLossScale, ""},
    {"fp16.min_loss_scale", noted, kLossScale, ""},
    {"fp16.fp16_master_weights_and_grads", refused, "master weights stay exact: bf16 with --master-weights split takes as little memory",
     kOff},
    {"bf16.enabled", read, "", ""},
    {"bf16.immediate_grad_update", noted, "gradients are summed in fp32 either way", ""},
    {"bf16.check_grad_overflow", noted, kAlways, ""},
    {"bf16.bf16_master_weights_and_grads", refused,
     "master weights stay exact: --master-weights split --gradient-dtype bf16 takes as little memory", kOff},
    {"bf16.bf16_optimizer_states", refused, "leave this key out and give --moments bf16", kOff},
    {"bfloat16.enabled", read, "", ""},
    {"torch_autocast.enabled", refused, "give bf16: {\"enabled\": true} for weights and activations in bf16", "false"},
    {"torch_autocast.*", noted, kChecked, ""},
    {"amp.enabled", refused, "give fp16: {\"enabled\": true} or bf16", "false"},
    {"amp.*", noted, kChecked, ""},
    {"data_types.grad_accum_dtype", read, "", ""},
    {"data_types.*", refused, "--precision sets the type of weights and activations; sums stay in fp32 where needed", "\"auto\""},
    {"communication_data_type", noted, "gradients are summed in fp32", ""},
    {"fp32_allreduce", noted, kAlways, ""},
    {"seq_parallel_communication_data_type", noted, "there is no sequence parallelism", ""},
    {"prescale_gradients", noted, "gradients are summed in fp32: nothing overflows", ""},
    {"gradient_predivide_factor", noted, "gradients are summed in fp32: nothing overflows", ""},
    {"gradient_allreduce_op", refused, "gradients are means over the batch", "\"mean\""},
    {"sparse_gradients", noted, "gradients of embeddings are dense and have the same values", ""},
    {"disable_allgather", noted, kPlanned, ""},

    {"zero_optimization", read, "", ""},
    {"zero_optimization.stage", same, "zero-stage", ""},
    {"zero_optimization.offload_optimizer.device", read, "", ""},
    {"zero_optimization.offload_optimizer.nvme_path", read, "", ""},
    {"zero_optimization.offload_optimizer.ratio", refused, "give --place-optimizer device=4GiB,host=rest to say how much stays on the GPU",
     "1|1.0"},
    {"zero_optimization.offload_optimizer.pipeline_read", noted, kAlways, ""},
    {"zero_optimization.offload_optimizer.pipeline_write", noted, kAlways, ""},
    {"zero_optimization.offload_optimizer.super_offload", noted, "--optimizer-overlap sets when the optimizer step runs", ""},
    {"zero_optimization.offload_optimizer.cpuadam_cores_perc", noted, "--threads sets the number of compute threads", ""},
    {"zero_optimization.offload_optimizer.*", noted, kPlanned, ""},
    {"zero_optimization.offload_param.device", read, "", ""},
    {"zero_optimization.offload_param.nvme_path", read, "", ""},
    {"zero_optimization.offload_param.*", noted, kPlanned, ""},
    {"zero_optimization.cpu_offload", read, "", ""},
    {"zero_optimization.cpu_offload_param", read, "", ""},
    {"zero_optimization.cpu_offload_params", read, "", ""},
    {"zero_optimization.cpu_offload_use_pin_memory", noted, kPlanned, ""},
    {"zero_optimization.contiguous_gradients", noted, kAlways, ""},
    {"zero_optimization.overlap_comm", noted, "the plan overlaps what it can", ""},
    {"zero_optimization.reduce_scatter", noted, kPlanned, ""},
    {"zero_optimization.reduce_bucket_size", noted, kPlanned, ""},
    {"zero_optimization.use_multi_rank_bucket_allreduce", noted, kPlanned, ""},
    {"zero_optimization.allgather_partitions", noted, kPlanned, ""},
    {"zero_optimization.allgather_bucket_size", noted, kPlanned, ""},
    {"zero_optimization.sub_group_size", noted, kPlanned, ""},
    {"zero_optimization.grad_hooks", noted, kPlanned, ""},
    {"zero_optimization.round_robin_gradients", noted, kPlanned, ""},
    {"zero_optimization.parameter_alignment", noted, kPlanned, ""},
    {"zero_optimization.compute_grad_norm", noted, kAlways, ""},
    {"zero_optimization.load_from_fp32_weights", noted, kCheckpoints, ""},
    {"zero_optimization.elastic_checkpoint", noted, kCheckpoints, ""},
    {"zero_optimization.pipeline_loading_checkpoint", noted, kCheckpoints, ""},
    {"zero_optimization.ignore_unused_parameters", noted, kChecked, ""},
    {"zero_optimization.legacy_stage1", noted, kChecked, ""},
    {"zero_optimization.memory_efficient_linear", noted, kChecked, ""},
    {"zero_optimization.override_module_apply", noted, kChecked, ""},
    {"zero_optimization.log_trace_cache_warnings", noted, kChecked, ""},
    {"zero_optimization.enable_sanity_checks", noted, kChecked, ""},
    {"zero_optimization.save_muon_momentum_buffer_in_memory", noted, kPlanned, ""},
    {"zero_optimization.leaf_module.*", noted, "the parameters of a block are always fetched together", ""},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", noted, "spillway export writes a Hugging Face folder", ""},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", noted, "spillway export writes a Hugging Face folder", ""},
    {"zero_optimization.stage3_max_live_parameters", noted, kPlanned, ""},
    {"zero_optimization.stage3_max_reuse_distance", noted, kPlanned, ""},
    {"zero_optimization.stage3_prefetch_bucket_size", noted, kPlanned, ""},
    {"zero_optimization.stage3_param_persistence_threshold", noted, kPlanned, ""},
    {"zero_optimization.stage3_model_persistence_threshold", noted, kPlanned, ""},
    {"zero_optimization.stage3_module_granularity_threshold", noted, kPlanned, ""},
    {"zero_optimization.stage3_use_all_reduce_for_fetch_params", noted, kPlanned, ""},
    {"zero_optimization.stage3_allgather_sequential", noted, kPlanned, ""},
    {"zero_optimization.prefetch_bucket_size", noted, kPlanned, ""},
    {"zero_optimization.param_persistence_threshold", noted, kPlanned, ""},
    {"zero_optimization.model_persistence_threshold", noted, kPlanned, ""},
    {"zero_optimization.max_live_parameters", noted, kPlanned, ""},
    {"zero_optimization.max_reuse_distance", noted, kPlanned, ""},
    {"zero_optimization.gather_16bit_weights_on_model_save", noted, "spillway export writes a Hugging Face folder", ""},
    {"zero_optimization.zero_hpz_partition_size", refused, "leave this key out: weights are sharded over all data-parallel ranks", "0|1"},
    {"zero_optimization.zero_quantized_weights", refused, "weights are sent unquantized; --base-weights 8bit exists for LoRA only", kOff},
    {"zero_optimization.zero_quantized_nontrainable_weights", refused, "give --base-weights 8bit, for the base of LoRA", kOff},
    {"zero_optimization.zero_quantized_gradients", refused, "gradients are summed in fp32", kOff},
    {"zero_optimization.zenflow", refused, "--optimizer-overlap backward overlaps the exact step", "null"},
    {"zero_optimization.zenflow.*", refused, "--optimizer-overlap backward overlaps the exact step", ""},
    {"allgather_size", noted, kPlanned, ""},
    {"aio.*", noted, kPlanned, ""},

    {"activation_checkpointing.cpu_checkpointing", read, "", ""},
    {"activation_checkpointing.partition_activations", noted,
     "each rank keeps its own activations; --recompute block keeps only the input of a block", ""},
    {"activation_checkpointing.*", noted, "--recompute and --place-activations set what is kept and where; by default the plan chooses",
     ""},
    {"pipeline.stages", read, "", ""},
    {"pipeline.activation_checkpoint_interval", read, "", ""},
    {"pipeline.partition", noted, "the plan balances the stages (--pipeline-split)", ""},
    {"pipeline.*", noted, kChecked, ""},
    {"tensor_parallel.autotp_size", refused, "give --zero-stage 3 or --pipeline-stages to spread a model over ranks", "0|1"},
    {"tensor_parallel.*", noted, kChecked, ""},
    {"use_data_before_expert_parallelism", noted, kChecked, ""},

    {"steps_per_print", same, "log-every", ""},
    {"wall_clock_breakdown", read, "", ""},
    {"flops_profiler.enabled", read, "", ""},
    {"flops_profiler.*", noted, kShown, ""},
    {"memory_breakdown", noted, "the plan shows memory by tier, and the end of the log compares it with the measured peaks", ""},
    {"dump_state", noted, "config.json in the run folder has every setting", ""},
    {"log_level", noted, "use --quiet for less output", ""},
    {"disable_python_gc", noted, kChecked, ""},
    {"vocabulary_size", noted, kChecked, ""},
    {"tensorboard.enabled", noted, kAlways, ""},
    {"tensorboard.*", noted, kFolder, ""},
    {"csv_monitor.enabled", read, "", ""},
    {"csv_monitor.*", noted, kFolder, ""},
    {"wandb.*", noted, kShown, ""},
    {"comet.*", noted, kShown, ""},
    {"comms_logger.*", noted, kShown, ""},
    {"autotuning.enabled", refused, "spillway plan predicts what fits and how fast it is", "false"},
    {"autotuning.*", noted, kChecked, ""},
    {"elasticity.enabled", refused, "give --global-batch-size: a run can continue with other numbers of ranks and the same results",
     "false"},
    {"elasticity.*", noted, kChecked, ""},

    {"checkpoint.load_universal", noted, kCheckpoints, ""},
    {"checkpoint.use_node_local_storage", noted, "--out sets the folder of the checkpoints", ""},
    {"checkpoint.*", noted, kCheckpoints, ""},
    {"nebula.*", noted, kCheckpoints, ""},
    {"dataloader_drop_last", same, "drop-last", ""},
    {"compile.*", noted, "there is no compiler in Spillway", ""},

    {"sparse_attention.*", refused, "leave this key out; a sliding window of the model's config.json is used", ""},
    {"curriculum_learning.enabled", refused, "leave this key out", "false"},
    {"curriculum_learning.*", noted, kChecked, ""},
    {"data_efficiency.enabled", refused, "leave this key out", "false"},
    {"data_efficiency.*", noted, kChecked, ""},
    {"progressive_layer_drop.enabled", refused, "leave this key out", "false"},
    {"progressive_layer_drop.*", noted, kChecked, ""},
    {"eigenvalue.enabled", refused, "leave this key out", "false"},
    {"eigenvalue.*", noted, kChecked, ""},
    {"hybrid_engine.enabled", refused, "spillway generate and evaluate read a run's checkpoints", "false"},
    {"hybrid_engine.*", noted, kChecked, ""},
    {"compression_training.*", refused, "leave this key out; --base-weights 8bit or nf4 is for LoRA", ""},
    {"quantize_training.*", refused, "leave this key out; --base-weights 8bit or nf4 is for LoRA", ""},
    {"weight_quantization.*", refused, "leave this key out; --base-weights 8bit or nf4 is for LoRA", ""},
};

// Returns "x." for an entry "x.*", which stands for all keys inside x. Returns an empty text for an entry that is a single key.
std::string_view folder_of(const DeepspeedKey& key) {
  return key.path.ends_with(".*") ? key.path.substr(0, key.path.size() - 1) : std::string_view();
}

}  // namespace

const DeepspeedKey* find_deepspeed_key(std::string_view path) {
  const auto exact = std::ranges::find(kKeys, path, &DeepspeedKey::path);
  if (exact != std::end(kKeys)) return exact;
  const auto within = std::ranges::find_if(kKeys, [&](const DeepspeedKey& key) {
    const std::string_view folder = folder_of(key);
    return !folder.empty() && path.starts_with(folder);
  });
  return within != std::end(kKeys) ? within : nullptr;
}

bool is_deepspeed_section(std::string_view path) {
  return std::ranges::any_of(kKeys, [&](const DeepspeedKey& key) {
    return key.path.size() > path.size() && key.path.starts_with(path) && key.path[path.size()] == '.';
  });
}

std::string nearest_deepspeed_key(const std::string& path) {
  std::vector<std::string> known;
  for (const DeepspeedKey& key : kKeys) {
    const std::string_view folder = folder_of(key);
    known.emplace_back(folder.empty() ? key.path : folder.substr(0, folder.size() - 1));
  }
  return nearest(path, known);
}

}  // namespace spillway::trainer
