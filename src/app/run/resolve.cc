#include "app/run/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "app/checkpoints/adapters.h"
#include "app/node/grant.h"
#include "app/ranks/attention_choice.h"
#include "base/error.h"

namespace spillway::app {
namespace {

void apply_dropout(TrainConfig& config, ModelSource& source) {
  models::ModelConfig& m = source.config;
  if (config.dropout) m.embedding_dropout = m.residual_dropout = m.attention_dropout = *config.dropout;
  const bool equal = m.embedding_dropout == m.residual_dropout && m.residual_dropout == m.attention_dropout;
  if (equal) config.dropout = m.residual_dropout;
}

void apply_attention(const TrainConfig& config, ModelSource& source) {
  if (config.attention != Attention::cudnn) return;
  models::ModelConfig& m = source.config;
  if (m.reads_images())
    throw Error(ErrorCode::usage,
                fmt::format("[--attention] expected a model with attention for cudnn, got {}; leave it out", source.name));
  check_attention(config, attention_shape(m, config.micro_batch_rows(), *config.sequence_length, weight_dtype(*config.precision)),
                  m.attention_dropout);
  m.attention = kernels::AttentionLibrary::cudnn;
}

// Flags of text.
void check_images(const TrainConfig& config, const ModelSource& source) {
  const auto refuse = [&](const char* flag, const std::string& got) {
    throw Error(ErrorCode::usage, fmt::format("[{}] expected no such flag for {}, which reads images, got {}", flag, source.name, got));
  };
  if (config.sequence_length && *config.sequence_length != 1) refuse("--sequence-length", std::to_string(*config.sequence_length));
  if (config.tokenizer) refuse("--tokenizer", *config.tokenizer);
  const bool drops = source.config.family == models::Family::alexnet || source.config.family == models::Family::vgg11;
  if (config.dropout.value_or(0) != 0 && !drops) refuse("--dropout", fmt::format("{}", *config.dropout));
  if (config.sample_every > 0) refuse("--sample-every", std::to_string(config.sample_every));
}

// Flags of images.
void check_text(const TrainConfig& config, const ModelSource& source) {
  const auto refuse = [&](const char* flag, const std::string& got) {
    throw Error(ErrorCode::usage, fmt::format("[{}] expected no such flag for {}, which reads text, got {}", flag, source.name, got));
  };
  if (config.augment != "none") refuse("--augment", config.augment);
  if (config.image_size) refuse("--image-size", std::to_string(*config.image_size));
}

}  // namespace

i64 default_micro_batch_size(const models::ModelConfig& model) { return model.reads_images() ? 64 : 1; }

int loader_workers(const TrainConfig& config, const RankPlace& place) {
  if (config.workers) return static_cast<int>(*config.workers);
  return config.threads ? static_cast<int>(*config.threads) : core_grant(Host{}, place.core_sharers, place.local_ranks).cores;
}

kernels::AttentionShape attention_shape(const models::ModelConfig& model, i64 micro_batch_size, i64 sequence_length, DType dtype) {
  return {micro_batch_size, sequence_length, model.heads, model.kv_heads, model.head_dim, dtype, model.family == models::Family::gpt2};
}

void resolve_model(TrainConfig& config, ModelSource& source) {
  source.config.reads_images() ? check_images(config, source) : check_text(config, source);
  if (config.image_size && source.folder)
    throw Error(ErrorCode::usage, fmt::format("[--image-size] expected no such flag for {}, whose config.json says it, got {}", source.name,
                                              *config.image_size));
  apply_dropout(config, source);
  resolve_adapters(config, source);
  if (source.config.experts && source.config.experts->evened_out && config.pipeline_stages > 1)
    throw Error(
        ErrorCode::usage,
        "[--pipeline-stages] expected 1 of a model whose config.json says output_router_logits: its router loss is of the experts of "
        "all layers together, which stages do not share; say false there, or --pipeline-stages 1");
  const bool loaded = source.has_weights && !config.from_scratch;
  if (!config.learning_rate) config.learning_rate = source.config.lora ? 2e-4 : loaded ? 2e-5 : 3e-4;
  if (config.lora && !config.lora_alpha) config.lora_alpha = source.config.lora->alpha;
  if (!config.sequence_length) config.sequence_length = source.config.positions;
  if (!config.micro_batch_size) config.micro_batch_size = default_micro_batch_size(source.config);
  if (*config.sequence_length > source.config.positions) {
    throw Error(ErrorCode::usage, fmt::format("[train] expected --sequence-length of at most {} (the model's positions), got {}",
                                              source.config.positions, *config.sequence_length));
  }
  apply_attention(config, source);
}

void resolve_steps(TrainConfig& config, const data::Loader& loader) {
  if (!config.steps) {
    const double windows = config.epochs.value_or(1) * static_cast<double>(loader.windows());
    config.steps = std::max<i64>(1, static_cast<i64>(std::floor(windows / static_cast<double>(loader.windows_per_step()))));
  }
  if (!config.warmup_steps) config.warmup_steps = default_warmup_steps(config.lr_schedule, *config.steps);
}

data::LoaderOptions loader_options(const TrainConfig& config, int rank) {
  data::LoaderOptions options;
  options.sequence_length = *config.sequence_length;
  options.micro_batch_size = config.micro_batch_rows();
  options.micro_batches = config.micro_batches(config.data_ranks());
  options.rank = rank;
  options.ranks = static_cast<int>(config.data_ranks());
  options.shuffled = config.data_order == DataOrder::shuffled;
  options.seed = config.seed;
  options.validation_fraction = config.validation_fraction;
  return options;
}

}  // namespace spillway::app
