#include "app/run/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"

namespace spillway::app {
namespace {

bool is_text(const std::string& path) { return std::filesystem::is_directory(path) || std::filesystem::path(path).extension() == ".txt"; }

void check_tokenizer(const TrainConfig& config, const ModelSource& source) {
  if (config.tokenizer || !source.has_weights || config.from_scratch) return;
  for (const std::string& path : config.data) {
    if (!is_text(path)) continue;
    throw Error(
        ErrorCode::usage,
        fmt::format("[tokenizer] {} has weights, and `{}` is text: its tokenizer.json is not read by this version; give token files "
                    "(.bin), or --tokenizer bytes if the model was trained on bytes",
                    config.model, path));
  }
}

void apply_dropout(TrainConfig& config, ModelSource& source) {
  models::ModelConfig& m = source.config;
  if (config.dropout) m.embedding_dropout = m.residual_dropout = m.attention_dropout = *config.dropout;
  const bool equal = m.embedding_dropout == m.residual_dropout && m.residual_dropout == m.attention_dropout;
  if (equal) config.dropout = m.residual_dropout;
}

// Flags of text.
void check_images(const TrainConfig& config, const ModelSource& source) {
  const auto refuse = [&](const char* flag, const std::string& got) {
    throw Error(ErrorCode::usage, fmt::format("[{}] expected no such flag for {}, which reads images, got {}", flag, source.name, got));
  };
  if (config.sequence_length && *config.sequence_length != 1) refuse("--sequence-length", std::to_string(*config.sequence_length));
  if (config.tokenizer) refuse("--tokenizer", *config.tokenizer);
  if (config.dropout.value_or(0) != 0) refuse("--dropout", fmt::format("{}", *config.dropout));
  if (config.sample_every > 0) refuse("--sample-every", std::to_string(config.sample_every));
}

}  // namespace

i64 default_micro_batch_size(const models::ModelConfig& model) { return model.reads_images() ? 64 : 1; }

void resolve_model(TrainConfig& config, ModelSource& source) {
  source.config.reads_images() ? check_images(config, source) : check_tokenizer(config, source);
  apply_dropout(config, source);
  const bool loaded = source.has_weights && !config.from_scratch;
  if (!config.learning_rate) config.learning_rate = loaded ? 2e-5 : 3e-4;
  if (!config.sequence_length) config.sequence_length = source.config.positions;
  if (!config.micro_batch_size) config.micro_batch_size = default_micro_batch_size(source.config);
  if (*config.sequence_length > source.config.positions) {
    throw Error(ErrorCode::usage, fmt::format("[train] expected --sequence-length of at most {} (the model's positions), got {}",
                                              source.config.positions, *config.sequence_length));
  }
}

void resolve_steps(TrainConfig& config, const data::Loader& loader) {
  if (!config.steps) {
    const double windows = config.epochs.value_or(1) * static_cast<double>(loader.windows());
    config.steps = std::max<i64>(1, static_cast<i64>(std::floor(windows / static_cast<double>(loader.windows_per_step()))));
  }
  if (!config.warmup_steps) config.warmup_steps = default_warmup_steps(*config.steps);
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

DataSources::DataSources(const std::vector<std::string>& paths, const models::ModelConfig& model, data::Split split) {
  if (model.reads_images()) {
    images_ = data::open_cifar10(paths, split);
  } else {
    tokens_ = data::open_token_sources(paths, model.vocabulary);
  }
}

std::unique_ptr<data::Samples> DataSources::samples(i64 sequence_length, DType dtype) const {
  return images_.empty() ? data::windows_of(tokens_, sequence_length) : data::images_of(images_, dtype);
}

RunData::RunData(const TrainConfig& config, int rank, const models::ModelConfig& model)
    : sources(config.data, model, data::Split::training) {
  data::LoaderOptions options = loader_options(config, rank);
  const auto loader = [&](const DataSources& from) {
    return std::make_unique<const data::Loader>(from.samples(options.sequence_length, weight_dtype(*config.precision)), options);
  };
  training = loader(sources);
  if (!config.validation_data.empty()) {
    validation_sources.emplace(config.validation_data, model, data::Split::held_out);
    options.validation_fraction = 1;
    held_out = loader(*validation_sources);
  } else if (training->validation_windows() > 0) {
    held_out = loader(sources);
  }
}

}  // namespace spillway::app
