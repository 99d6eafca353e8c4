#include "app/resolve.h"

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

}  // namespace

void resolve_model(TrainConfig& config, ModelSource& source) {
  check_tokenizer(config, source);
  apply_dropout(config, source);
  const bool loaded = source.has_weights && !config.from_scratch;
  if (!config.learning_rate) config.learning_rate = loaded ? 2e-5 : 3e-4;
  if (!config.sequence_length) config.sequence_length = source.config.positions;
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
  options.micro_batch_size = config.micro_batch_size;
  options.micro_batches = config.micro_batches(config.data_ranks());
  options.rank = rank;
  options.ranks = static_cast<int>(config.data_ranks());
  options.shuffled = config.data_order == DataOrder::shuffled;
  options.seed = config.seed;
  options.validation_fraction = config.validation_fraction;
  return options;
}

RunData open_data(const TrainConfig& config, int rank, i64 vocabulary) {
  RunData run;
  run.sources = data::open_token_sources(config.data, vocabulary);
  data::LoaderOptions options = loader_options(config, rank);
  run.training = std::make_unique<data::Loader>(run.sources, options);
  if (!config.validation_data.empty()) {
    run.validation_sources = data::open_token_sources(config.validation_data, vocabulary);
    options.validation_fraction = 1;
    run.held_out = std::make_unique<data::Loader>(run.validation_sources, options);
  } else if (run.training->validation_windows() > 0) {
    run.held_out = std::make_unique<data::Loader>(run.sources, options);
  }
  return run;
}

}  // namespace spillway::app
