// spillway evaluate: the loss of a model folder, a run or a checkpoint on data, under the same budgets and placements as training. Data-
// parallel ranks share the windows; the result is the same bits on any number of ranks.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/commands/commands.h"
#include "app/ranks/device_choice.h"
#include "app/ranks/rank_report.h"
#include "app/run/held_out.h"
#include "app/run/inference.h"
#include "app/run/resolve.h"
#include "app/run/run_on_ranks.h"
#include "base/error.h"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;

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

std::string result_text(const HeldOutLoss& loss, bool json) {
  const double perplexity = std::exp(loss.mean());
  if (const auto accuracy = loss.accuracy()) {
    if (json) return nlohmann::ordered_json{{"loss", loss.mean()}, {"accuracy", *accuracy}, {"images", loss.targets}}.dump();
    return fmt::format("loss {:.6f}, accuracy {:.4f}, {} images", loss.mean(), *accuracy, loss.targets);
  }
  if (json) return nlohmann::ordered_json{{"loss", loss.mean()}, {"perplexity", perplexity}, {"tokens", loss.targets}}.dump();
  return fmt::format("loss {:.6f}, perplexity {:.4f}, {} tokens", loss.mean(), perplexity, loss.targets);
}

int evaluate(const EvaluateConfig& config, Console& console, const Peers& peers) {
  std::optional<Inference> model;
  std::optional<DataSources> sources;
  std::optional<data::Loader> loader;
  Workload work{.mode = nn::Mode::evaluate};
  peers.together([&] {
    model.emplace(Command::evaluate, config, peers);
    const models::ModelConfig& of = model->source().config;
    if (!of.reads_images()) check_tokenizer(config, model->source());
    work.sequence_length = sequence_length(config, model->source());
    work.micro_batch_size = config.micro_batch_size.value_or(default_micro_batch_size(of));
    sources.emplace(config.data, of, data::Split::held_out);
    loader.emplace(sources->samples(work.sequence_length, weight_dtype(*config.precision)),
                   data::LoaderOptions{.sequence_length = work.sequence_length,
                                       .micro_batch_size = work.micro_batch_size,
                                       .rank = model->mesh().data_rank(peers.rank()),
                                       .ranks = model->mesh().data,
                                       .validation_fraction = 1});
  });
  model->open(config, {{"windows of --data", std::to_string(loader->validation_windows())}}, work, console);
  report_phase(RankPhase::evaluating);
  const i64 all = held_out_micro_batches(*loader, work.micro_batch_size);
  const auto show = [&](const HeldOutLoss& so_far) {
    console.passing(fmt::format("{} of {} micro-batches, loss {:.4f}", so_far.micro_batches, all, so_far.mean()));
  };
  const HeldOutLoss loss = held_out_loss(model->rank(), model->mesh(), peers, *loader, all, show);
  console.end_progress();
  console.result(result_text(loss, console.json()));
  return 0;
}

}  // namespace

int run_evaluate(const EvaluateConfig& given, Console& console, const Peers& peers) {
  EvaluateConfig config = given;
  config.ranks = peers.ranks();
  resolve_device(config, look_at_gpus(config, peers.place().local_rank));
  return run_on_ranks(peers, console, [&](Console& own) { return evaluate(config, own, peers); });
}

}  // namespace spillway::app
