#include "tests/app/program/support_rank_cells.h"

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

namespace spillway::app {
namespace {

using test::Row;
using Words = std::vector<std::string>;

constexpr int kSteps = 10, kLocal = 0, kMpi = 2;

struct FactorText {
  const char* name;
  Words values;
};

const std::vector<FactorText>& factors() {
  static const Words tiers{"device", "host", "nvme"};
  static const std::vector<FactorText> all{
      {"model", {"gpt2-tiny", "llama-tiny", "gpt2-uneven", "llama-uneven", "experts", "window", "packed", "adapters", "adapters-nf4"}},
      {"zero", {"0", "1", "2", "3"}},
      {"pipeline", {"none", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "vertical"}},
      {"parameters", tiers},
      {"gradients", tiers},
      {"optimizer", tiers},
      {"activations", {"device", "host", "nvme", "recompute"}},
      {"overlap", {"none", "backward", "forward", "auto"}},
      {"threads", {"1", "2"}},
      {"communicator", {"local", "sockets", "mpi"}},
      {"reduction", {"step", "micro-batch"}}};
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

// Returns a configuration in which a block has 13 tiles of 16,384 elements, and the embedding,
// the positions and the head have 5 tiles each. Odd numbers give two ranks unequal shards.
const char* uneven_config(const std::string& family) {
  if (family == "gpt2")
    return R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 500, "n_positions": 512, "n_embd": 132,
               "n_layer": 2, "n_head": 4, "activation_function": "gelu_new"})";
  if (family == "mistral")
    return R"({"model_type": "mistral", "architectures": ["MistralForCausalLM"], "vocab_size": 500, "max_position_embeddings": 256,
               "hidden_size": 136, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 34,
               "intermediate_size": 352, "hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "sliding_window": 5})";
  if (family == "mixtral")
    return R"({"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": 500, "max_position_embeddings": 256,
               "hidden_size": 136, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 34,
               "intermediate_size": 88, "hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
               "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": null})";
  return R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 500, "max_position_embeddings": 256,
             "hidden_size": 136, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 34,
             "intermediate_size": 352, "hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": false})";
}

// Runs a program with its arguments, writes stdout and stderr to two files, and returns its exit status.
int run_command(const Words& words, const std::string& out, const std::string& err) {
  std::string line;
  for (const std::string& word : words) line += "'" + word + "' ";
  const int status = std::system((line + ">'" + out + "' 2>'" + err + "'").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
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

bool possible_ranks(const Row& cell) {
  const bool whole = cell[kZero] == 0 || cell[kZero] == 1;
  return (cell[kRankCommunicator] != kMpi || *SPILLWAY_MPIEXEC != '\0') && !(whole && cell[kReduction] == 1);
}

std::string write_uneven_model(const TemporaryFolder& folder, const std::string& family) {
  const std::string name = family + "-uneven";
  folder.write(name + "/config.json", uneven_config(family));
  return (folder.path() / name).string();
}

RankCells::RankCells(OnThreads on_threads) : on_threads_(std::move(on_threads)) {
  std::string words;
  u32 state = 1;
  for (int i = 0; i < 20000; ++i) words += static_cast<char>(' ' + (state = state * 1664525u + 1013904223u) % 90);
  folder_.write("text.txt", words);
  std::string rows;  // the training rows, of which some are shorter and some longer than a sequence
  for (int i = 0; i < 1000; ++i)
    rows += R"({"prompt": "of )" + std::to_string(i) + R"(", "completion": ")" + std::string(i * 7 % 23 + 1, 'a') + "\"}\n";
  folder_.write("rows.jsonl", rows);
  for (const char* family : {"gpt2", "llama", "mistral", "mixtral"}) write_uneven_model(folder_, family);
  // The variables allow root to start mpirun, with fewer cores than ranks. mpirun never frees some of its memory, so leaks are not
  // reported.
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"})
    ::setenv(name, "1", 1);
  ::setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
  ::setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
}

std::string RankCells::model(const Row& cell) const {
  const std::string& name = value(cell, kRankModel);
  const std::string folder = name == "experts"  ? "mixtral-uneven"
                             : name == "window" ? "mistral-uneven"
                             : name == "packed" ? "gpt2-uneven"
                                                : name;
  return folder.ends_with("-uneven") ? (folder_.path() / folder).string() : folder;
}

// Returns a model folder with weights. The first call makes the folder.
std::string RankCells::base() {
  const std::filesystem::path run = folder_.path() / "base-run", base = folder_.path() / "base";
  if (std::filesystem::exists(base)) return base.string();
  const Outcome made = run_app({"train", "--model", (folder_.path() / "llama-uneven").string(), "--from-scratch", "--data",
                                (folder_.path() / "text.txt").string(), "--sequence-length", "16", "--steps", "1", "--out", run.string()});
  if (made.status != 0 || run_app({"export", run.string(), "--out", base.string()}).status != 0)
    throw std::runtime_error("the base: " + made.err);
  return base.string();
}

Words RankCells::flags(const Row& cell, const std::string& out) {
  const std::string& kind = value(cell, kRankModel);
  const bool adapters = kind.starts_with("adapters");
  Words all = {"--json",
               "--model",
               adapters ? base() : model(cell),
               "--data",
               (folder_.path() / (kind == "packed" ? "rows.jsonl" : "text.txt")).string(),
               "--tokenizer",
               "bytes",
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
               "--gradient-reduction",
               value(cell, kReduction),
               "--out",
               out};
  // Adapters of LoRA rank 60 give each block 9 tiles.
  if (adapters) all.insert(all.end(), {"--lora", "60", "--lora-dropout", "0.1"});
  if (!adapters) all.push_back("--from-scratch");
  if (kind == "adapters-nf4") all.insert(all.end(), {"--base-weights", "nf4"});
  const std::string& kept = value(cell, kKept);
  const Words more = kept == "recompute" ? Words{"--recompute", "block"} : Words{"--recompute", "none", "--place-activations", kept};
  all.insert(all.end(), more.begin(), more.end());
  if (stages(cell) > 1) all.insert(all.end(), {"--pipeline-stages", "2", "--pipeline-schedule", value(cell, kPipeline)});
  return all;
}

// Starts the cell's ranks as a user would: as threads, as processes that spillway starts, or as processes of mpirun.
Outcome RankCells::start(const Row& cell, const Words& flags) const {
  const int ranks = kCellDataRanks * stages(cell);
  if (cell[kRankCommunicator] == kLocal && on_threads_) return on_threads_(ranks, flags);
  const std::string count = std::to_string(ranks);
  const bool mpi = cell[kRankCommunicator] == kMpi;
  Words words = {"train", "--communicator", value(cell, kRankCommunicator) == "sockets" ? "auto" : value(cell, kRankCommunicator)};
  words.insert(words.end(), flags.begin(), flags.end());
  if (!mpi) words.insert(words.end(), {"--ranks", count});
  if (cell[kRankCommunicator] == kLocal) return run_app(words);
  words.insert(words.begin(), SPILLWAY_PROGRAM);
  if (mpi) words.insert(words.begin(), {SPILLWAY_MPIEXEC, "-n", count});
  const std::string out = (folder_.path() / "out.txt").string(), err = (folder_.path() / "err.txt").string();
  const int status = run_command(words, out, err);
  return {status, read_whole(out).value_or(""), read_whole(err).value_or("")};
}

RankCells::Trained RankCells::train(const Row& cell, const Words& more, std::string& wrong) {
  const std::filesystem::path out = folder_.path() / ("run" + std::to_string(runs_++));
  Words all = flags(cell, out.string());
  for (size_t i = 0; i + 1 < more.size(); i += 2) {
    const auto before = std::find(all.begin(), all.end(), more[i]);
    before == all.end() ? void(all.insert(all.end(), {more[i], more[i + 1]})) : void(before[1] = more[i + 1]);
  }
  const Outcome first = start(cell, all);
  if (first.status != 0) wrong = "status " + std::to_string(first.status) + ": " + first.err;
  Trained trained{numbers_in(out), state_in(out, kSteps)};
  if (wrong.empty() && (trained.numbers.size() != kSteps || trained.state.size() < 1'000'000)) wrong = "not all of it was trained or saved";
  // The rank that writes the metrics may hold only frozen blocks, and then exchanges no gradients.
  const bool may_train_nothing = stages(cell) > 1 && value(cell, kRankModel).starts_with("adapters");
  for (const auto& row : metrics(out)) {
    if (wrong.empty() && row["exchanged_bytes"].get<i64>() == 0 && !may_train_nothing) wrong = "nothing crossed the data-parallel ranks";
    const bool in_parts = value(cell, kPipeline).starts_with("zb-");
    if (wrong.empty() && row["phase_ms"].contains("backward_weight") != in_parts && !may_train_nothing)
      wrong = "weight gradients were not made when they should";
  }
  const i64 unplanned = wrong.empty() ? nlohmann::json::parse(first.out).at("unplanned_bytes").get<i64>() : 0;
  if (unplanned != 0) wrong = std::to_string(unplanned) + " bytes moved otherwise than planned";
  std::filesystem::remove_all(out);
  return trained;
}

const RankCells::Trained& RankCells::reference(int model, int reduction) {
  const auto found = references_.find({model, reduction});
  if (found != references_.end()) return found->second;
  Row plain(kRankFactors, 0);
  plain[kRankModel] = model, plain[kReduction] = reduction, plain[kZero] = reduction ? 2 : 0;
  std::string wrong;
  Trained trained = train(plain, {}, wrong);
  if (!wrong.empty()) throw std::runtime_error("the reference: " + wrong);
  return references_[{model, reduction}] = std::move(trained);
}

std::string RankCells::objection(const Row& cell, const Words& more) {
  const Trained& want = reference(cell[kRankModel], cell[kReduction]);
  std::string wrong;
  const Trained got = train(cell, more, wrong);
  if (!wrong.empty()) return wrong;
  if (got.numbers != want.numbers) return "losses and norms differ";
  return got.state != want.state ? "weights or moments differ" : "";
}

}  // namespace spillway::app
