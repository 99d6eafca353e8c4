#include "tests/app/support_rank_cells.h"

#include <fstream>
#include <nlohmann/json.hpp>

namespace spillway::app {
namespace {

using test::Row;
using Words = std::vector<std::string>;

constexpr int kDataRanks = 2, kSteps = 10;

struct FactorText {
  const char* name;
  Words values;
};

const std::vector<FactorText>& factors() {
  static const Words tiers{"device", "host", "nvme"};
  static const std::vector<FactorText> all{{"model", {"gpt2-tiny", "llama-tiny"}},
                                           {"zero", {"0", "1", "2", "3"}},
                                           {"pipeline", {"none", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "vertical"}},
                                           {"parameters", tiers},
                                           {"gradients", tiers},
                                           {"optimizer", tiers},
                                           {"activations", {"device", "host", "nvme", "recompute"}},
                                           {"overlap", {"none", "backward", "forward", "auto"}},
                                           {"threads", {"1", "2"}}};
  return all;
}

const std::string& value(const Row& cell, RankFactor factor) { return factors()[factor].values[static_cast<size_t>(cell[factor])]; }

int stages(const Row& cell) { return cell[kPipeline] == 0 ? 1 : 2; }

std::vector<nlohmann::json> metrics(const std::filesystem::path& run) {
  std::ifstream file(run / "metrics.jsonl");
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

}  // namespace

std::vector<int> rank_factor_sizes() {
  std::vector<int> sizes;
  for (const FactorText& factor : factors()) sizes.push_back(static_cast<int>(factor.values.size()));
  return sizes;
}

std::string to_string(const Row& cell) {
  std::string text;
  for (size_t f = 0; f < factors().size(); ++f)
    text += std::string(f ? " " : "") + factors()[f].name + "=" + factors()[f].values[static_cast<size_t>(cell[f])];
  return text;
}

bool possible_ranks(const Row&) { return true; }

RankCells::RankCells() {
  std::string words;
  u32 state = 1;
  for (int i = 0; i < 20000; ++i) words += static_cast<char>(' ' + (state = state * 1664525u + 1013904223u) % 90);
  folder_.write("text.txt", words);
}

Words RankCells::flags(const Row& cell, const std::string& out) const {
  Words all = {"--model",
               value(cell, kRankModel),
               "--data",
               (folder_.path() / "text.txt").string(),
               "--sequence-length",
               "16",
               "--gradient-accumulation-steps",
               "4",
               "--steps",
               std::to_string(kSteps),
               "--learning-rate",
               "1e-3",
               "--gradient-clipping",
               "2.5",
               "--nvme",
               (folder_.path() / "scratch").string(),
               "--device-memory",
               "64MiB",
               "--host-memory",
               "64MiB",
               "--zero-stage",
               value(cell, kZero),
               "--place-parameters",
               value(cell, kRankParameters),
               "--place-gradients",
               value(cell, kRankGradients),
               "--place-optimizer",
               value(cell, kRankOptimizer),
               "--optimizer-overlap",
               value(cell, kRankOverlap),
               "--threads",
               value(cell, kRankThreads),
               "--out",
               out};
  const std::string& kept = value(cell, kKept);
  const Words more = kept == "recompute" ? Words{"--recompute", "block"} : Words{"--recompute", "none", "--place-activations", kept};
  all.insert(all.end(), more.begin(), more.end());
  if (stages(cell) > 1) all.insert(all.end(), {"--pipeline-stages", "2", "--pipeline-schedule", value(cell, kPipeline)});
  return all;
}

RankCells::Trained RankCells::train(const Row& cell, const Words& more, std::string& wrong) {
  const std::filesystem::path out = folder_.path() / ("run" + std::to_string(runs_++));
  Words all = flags(cell, out.string());
  for (size_t i = 0; i + 1 < more.size(); i += 2) {
    const auto before = std::find(all.begin(), all.end(), more[i]);
    before == all.end() ? void(all.insert(all.end(), {more[i], more[i + 1]})) : void(before[1] = more[i + 1]);
  }
  for (const Outcome& rank : train_on(kDataRanks * stages(cell), all)) {
    if (rank.status != 0 && wrong.empty()) wrong = "status " + std::to_string(rank.status) + ": " + rank.err;
  }
  Trained trained{numbers_in(out), state_in(out, kSteps)};
  if (wrong.empty() && (trained.numbers.size() != kSteps || trained.state.size() < 1'000'000)) wrong = "not all of it was trained or saved";
  for (const auto& row : metrics(out)) {
    if (wrong.empty() && row["exchanged_bytes"].get<i64>() == 0) wrong = "nothing crossed the data-parallel ranks";
    const bool in_parts = value(cell, kPipeline).starts_with("zb-");
    if (wrong.empty() && row["phase_ms"].contains("backward_weight") != in_parts) wrong = "weight gradients were not made when they should";
  }
  std::filesystem::remove_all(out);
  return trained;
}

const RankCells::Trained& RankCells::reference(int model) {
  const auto found = references_.find(model);
  if (found != references_.end()) return found->second;
  Row plain(kRankFactors, 0);
  plain[kRankModel] = model;
  std::string wrong;
  Trained trained = train(plain, {}, wrong);
  if (!wrong.empty()) throw std::runtime_error("the reference: " + wrong);
  return references_[model] = std::move(trained);
}

std::string RankCells::objection(const Row& cell, const Words& more) {
  const Trained& want = reference(cell[kRankModel]);
  std::string wrong;
  const Trained got = train(cell, more, wrong);
  if (!wrong.empty()) return wrong;
  if (got.numbers != want.numbers) return "losses and norms differ";
  return got.state != want.state ? "weights or moments differ" : "";
}

}  // namespace spillway::app
