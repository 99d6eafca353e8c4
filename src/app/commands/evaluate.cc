// Implements `spillway evaluate`, which computes the loss of a model folder, a run or a checkpoint on
// data, or how often the model gives the right answer, under the same budgets and placements as training.
// Data-parallel ranks share the rows or choices. The result has the same bits on any number of ranks.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/commands/choice_scores.h"
#include "app/commands/commands.h"
#include "app/ranks/rank_console.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/units.h"
#include "trainer/node/grant.h"
#include "trainer/ranks/device_choice.h"
#include "trainer/ranks/rank_report.h"
#include "trainer/run/data_sources.h"
#include "trainer/run/held_out.h"
#include "trainer/run/inference.h"
#include "trainer/run/resolve.h"
#include "trainer/run/text_notice.h"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;

i64 sequence_length(const EvaluateConfig& config, const ModelSource& source) {
  const i64 T = config.sequence_length.value_or(source.config.positions);
  if (T <= source.config.positions) return T;
  throw Error(ErrorCode::usage, fmt::format("[evaluate] expected --sequence-length of at most {} (the model's positions), got {}",
                                            source.config.positions, T));
}

// Returns the run folder if the model is a run or one of its checkpoints, and otherwise an empty path.
fs::path run_of(const fs::path& model) {
  if (fs::is_directory(model / "checkpoints")) return model;
  const fs::path whole = fs::absolute(model).lexically_normal(),
                 parent = (whole.has_filename() ? whole : whole.parent_path()).parent_path();
  return parent.filename() == "checkpoints" ? parent.parent_path() : fs::path();
}

// Formats the result as JSON. A number that is not finite is null, with "nonfinite": "nan" or "inf" beside it, as in metrics.jsonl.
std::string json_text(const HeldOutLoss& loss, double perplexity) {
  const auto accuracy = loss.accuracy();
  nlohmann::ordered_json all = {{"loss", loss.mean()}};
  if (accuracy) {
    all.update({{"accuracy", *accuracy}, {"top_5_accuracy", *loss.top_5_accuracy()}, {"images", loss.targets}});
  } else {
    all.update({{"perplexity", perplexity}, {"tokens", loss.targets}});
  }
  const double worst = accuracy || std::isnan(loss.mean()) ? loss.mean() : perplexity;
  if (!std::isfinite(worst)) all["nonfinite"] = std::isnan(worst) ? "nan" : "inf";
  return all.dump();
}

std::string result_text(const HeldOutLoss& loss, bool json) {
  const double perplexity = std::exp(loss.mean());
  if (json) return json_text(loss, perplexity);
  if (const auto accuracy = loss.accuracy()) {
    const double top_5 = *loss.top_5_accuracy();
    return fmt::format("loss {:.6f}, accuracy {:.4f}, top 5 {:.4f}, {} images", loss.mean(), *accuracy, top_5, loss.targets);
  }
  return fmt::format("loss {:.6f}, perplexity {:.4f}, {} tokens", loss.mean(), perplexity, loss.targets);
}

void check_targets(const HeldOutLoss& loss) {
  if (loss.targets == 0)
    throw Error(ErrorCode::data, "[evaluate] expected tokens in --data that contribute to the loss, got none: there is no loss to report");
}

void check_loss_finite(const HeldOutLoss& loss, const EvaluateConfig& config) {
  if (std::isfinite(loss.mean())) return;
  throw Error(ErrorCode::numbers,
              fmt::format("[evaluate] expected a finite loss, got {} over {} targets: either weights of {} are not finite, or a computed "
                          "value overflowed, which --precision fp32 would avoid",
                          loss.mean(), loss.targets, config.model));
}

// Evaluates rows with choices: how often the model gives the right choice the highest likelihood.
int evaluate_choices(const EvaluateConfig& config, Console& console, const Peers& peers) {
  std::optional<Inference> model;
  ChoiceRows rows;
  Workload work{.mode = nn::Mode::evaluate};
  peers.together([&] {
    model.emplace(Command::evaluate, config, peers);
    const ModelSource& source = model->source();
    if (config.micro_batch_size)
      throw Error(ErrorCode::usage,
                  "[--micro-batch-size] expected no such flag with rows of choices, because each choice is a forward pass of its own: "
                  "leave the flag out");
    if (source.config.reads_images()) throw Error(ErrorCode::usage, "[evaluate] expected a language model, got " + source.name);
    rows = read_choice_rows(config.data, config.skip_bad_lines, *tokenizer_of(config, source, true), source.config.vocabulary,
                            sequence_length(config, source));
    work.sequence_length = longest_choice(rows.rows);
    work.micro_batch_size = 1;
  });
  std::vector<i32> facts;  // everything that defines the rows; ranks compare a checksum of these numbers
  for (const ChoiceRow& row : rows.rows) {
    facts.insert(facts.end(), {static_cast<i32>(row.choices.size()), static_cast<i32>(row.answer)});
    for (const ChoiceTokens& choice : row.choices) {
      facts.insert(facts.end(), {static_cast<i32>(choice.tokens.size()), static_cast<i32>(choice.begin), static_cast<i32>(choice.bytes)});
      facts.insert(facts.end(), choice.tokens.begin(), choice.tokens.end());
    }
  }
  model->open(config, {{"rows of --data", fmt::format("{:08x}", crc32c(std::as_bytes(std::span(facts))))}}, work, console);
  report_phase(RankPhase::evaluating);
  if (rows.cut_prompts > 0)
    console.log(fmt::format("data: for {} choices the prompt was cut at its beginning to fit into --sequence-length", rows.cut_prompts));
  for (const std::string& note : rows.notes) console.log("data: " + note);
  if (rows.bad_lines > 0) console.log(fmt::format("data: {} lines that are not valid rows were skipped", rows.bad_lines));
  const auto show = [&](i64 done, i64 all) { console.passing(fmt::format("{} of {} choices", done, all)); };
  const ChoiceScores scores = score_choices(model->rank(), model->mesh(), peers, rows.rows, work.sequence_length, show);
  console.end_progress();
  console.result(text_of(scores, rows, console.json()));
  return 0;
}

int evaluate(const EvaluateConfig& config, Console& console, const Peers& peers) {
  std::optional<Inference> model;
  std::optional<DataSources> sources;
  std::optional<data::Loader> loader;
  std::string text_note;
  Workload work{.mode = nn::Mode::evaluate};
  peers.together([&] {
    model.emplace(Command::evaluate, config, peers);
    const models::ModelConfig& of = model->source().config;
    work.sequence_length = sequence_length(config, model->source());
    work.micro_batch_size = config.micro_batch_size.value_or(default_micro_batch_size(of));
    const std::string cache = data_cache(config, run_of(config.model));
    const TextWay way = of.reads_images()
                            ? TextWay()
                            : text_way(config, config, model->source(), config.data, cache, core_grant(Host{}, 1, 1).threads, nullptr);
    if (way.maker) text_note = around_note(*way.maker);
    const int workers = core_grant(Host{}, peers.place().core_sharers, peers.place().local_ranks).threads;
    sources.emplace(config.data, of, way, data::Split::held_out, data::ImageWish{.format = images_read_by(of)});
    loader.emplace(sources->samples(work.sequence_length, packing_of(config, false), weight_dtype(*config.precision)),
                   data::LoaderOptions{.sequence_length = work.sequence_length,
                                       .micro_batch_size = work.micro_batch_size,
                                       .rank = model->mesh().data_rank(peers.rank()),
                                       .ranks = model->mesh().data,
                                       .workers = workers,
                                       .validation_fraction = 1});
  });
  model->open(config, {{"windows of --data", std::to_string(loader->validation_windows())}}, work, console);
  report_phase(RankPhase::evaluating);
  if (!text_note.empty()) console.log("data: " + text_note);
  for (const std::string& note : sources->notes()) console.log("data: " + note);
  if (const std::string notice = peers.first() ? text_notice(config.data) : ""; !notice.empty()) console.warn(notice);
  const i64 all = held_out_micro_batches(*loader, work.micro_batch_size);
  const auto begin = std::chrono::steady_clock::now();
  const auto show = [&](const HeldOutLoss& so_far) {
    const double passed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const double left_s = passed_s / static_cast<double>(so_far.micro_batches) * static_cast<double>(all - so_far.micro_batches);
    console.passing(fmt::format("{} of {} micro-batches, loss {:.4f}, left {}", so_far.micro_batches, all, so_far.mean(),
                                format_duration(left_s)));
  };
  const HeldOutLoss loss = held_out_loss(model->rank(), model->mesh(), peers, *loader, all, show);
  console.end_progress();
  check_targets(loss);
  console.result(result_text(loss, console.json()));
  check_loss_finite(loss, config);
  return 0;
}

}  // namespace

int run_evaluate(const EvaluateConfig& given, Console& console, const Peers& peers) {
  EvaluateConfig config = given;
  config.ranks = peers.ranks();
  resolve_device(config, look_at_gpus(config, peers.place().local_rank));
  return run_on_ranks(peers, console, [&](Console& own) {
    bool choices = false;
    peers.together([&] { choices = config.data_format == "auto" && std::ranges::any_of(config.data, has_choices); });
    return choices ? evaluate_choices(config, own, peers) : evaluate(config, own, peers);
  });
}

}  // namespace spillway::app
