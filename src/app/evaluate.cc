// spillway evaluate: the loss of a model folder, a run or a checkpoint on data, under the same budgets and placements as training.
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/session.h"
#include "base/error.h"
#include "data/loader.h"
#include "models/weights.h"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;

struct Evaluation {
  double loss = 0;  // mean over all targets
  i64 tokens = 0;
};

// Every window that fills, in the order of the files.
Evaluation evaluate(parallel::Rank& rank, const data::Loader& loader, Console& console) {
  double sum = 0;
  Evaluation result;
  const StreamScope scope(rank.input_stream());
  for (i64 i = 0; i < loader.validation_micro_batches(); ++i) {
    const MicroBatch batch = loader.validation(i);
    sum += rank.evaluate(batch);
    result.tokens += batch.counted_targets;
    console.progress(fmt::format("{} of {} micro-batches, loss {:.4f}", i + 1, loader.validation_micro_batches(),
                                 sum / static_cast<double>(result.tokens)));
  }
  console.end_progress();
  result.loss = sum / static_cast<double>(result.tokens);
  return result;
}

i64 sequence_length(const EvaluateConfig& config, const ModelSource& source) {
  const i64 T = config.sequence_length.value_or(source.config.positions);
  if (T <= source.config.positions) return T;
  throw Error(ErrorCode::usage, fmt::format("[evaluate] expected --sequence-length of at most {} (the model's positions), got {}",
                                            source.config.positions, T));
}

// What a run of ours was trained on was bytes; of others' weights nobody knows.
void check_tokenizer(const EvaluateConfig& config, const ModelSource& source) {
  if (config.tokenizer || fs::exists(*source.folder / "manifest.json")) return;
  for (const std::string& path : config.data) {
    if (!fs::is_directory(path) && fs::path(path).extension() != ".txt") continue;
    throw Error(ErrorCode::usage,
                fmt::format("[tokenizer] `{}` is text, and the tokenizer.json of {} is not read by this version: give token files (.bin), "
                            "or --tokenizer bytes if the model was trained on bytes",
                            path, config.model));
  }
}

}  // namespace

int run_evaluate(const EvaluateConfig& config, Console& console) {
  ModelSource source = find_trained_model(config.model, config.checkpoint);
  if (!source.has_weights) {
    throw Error(
        ErrorCode::usage,
        fmt::format("[evaluate] {} has no weights: give a run folder, a checkpoint or a folder with model.safetensors", config.model));
  }
  check_tokenizer(config, source);
  const i64 T = sequence_length(config, source);
  const auto sources = data::open_token_sources(config.data, source.config.vocabulary);
  const data::Loader loader(sources, {.sequence_length = T, .micro_batch_size = config.micro_batch_size, .validation_fraction = 1});
  Session session(config, std::move(source), fmt::format("evaluate-{}", ::getpid()));
  const PlanWishes wishes{.parameters = config.place_parameters,
                          .gradients = PlacementWish::whole(Tier::device),
                          .optimizer = PlacementWish::whole(Tier::device),
                          .prefetch = config.prefetch};
  session.plan(wishes, false, 1, config.micro_batch_size, T);
  session.open();
  const models::FolderWeights weights(session.model(), *session.source().folder);
  session.rank().load([&](const nn::Parameter& p, i64 begin, std::span<double> out) { weights.read(p, begin, out); });
  const Evaluation result = evaluate(session.rank(), loader, console);
  if (console.json()) {
    console.result(nlohmann::ordered_json{{"loss", result.loss}, {"perplexity", std::exp(result.loss)}, {"tokens", result.tokens}}.dump());
  } else {
    console.result(fmt::format("loss {:.6f}, perplexity {:.4f}, {} tokens", result.loss, std::exp(result.loss), result.tokens));
  }
  return 0;
}

}  // namespace spillway::app
