// spillway selftest: trains tiny models with every placement and sharding listed in selftest_cells.h, with this program on this node, and
// compares losses, gradient norms, weights and moments bit by bit. Prints a table for a bug report, and fails with exit status 7 if a
// result differs.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "app/commands/commands.h"
#include "app/commands/selftest_cells.h"
#include "app/console/signals.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/json.h"
#include "base/random.h"
#include "base/units.h"
#include "models/lora.h"
#include "optim/isa.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/node/own_program.h"
#include "trainer/node/stop.h"
#include "trainer/ranks/device_choice.h"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr i64 kSteps = 4, kTextBytes = 40000;

// A temporary folder, removed with this object.
class Folder {
 public:
  explicit Folder(const fs::path& above) {
    std::string name = (above / "spillway-selftest-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw Error(ErrorCode::usage,
                  "[selftest] expected a folder to write to, got " + above.string() + ": give another --nvme PATH, or set TMPDIR");
    }
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// The result of a training run. Equal texts mean equal bits.
struct CellResult {
  int status = 0;
  std::string trouble;            // the run's last line of output, if the status is not 0
  std::string loss, norm, steps;  // the last step's loss and gradient norm; the numbers of all steps
  u32 weights = 0, moments = 0;   // checksums of the checkpoint's files
  bool operator==(const CellResult&) const = default;
};

char letter(i64 i) { return static_cast<char>('a' + static_cast<int>(normal(RandomKey{7}, 0, static_cast<u64>(i)) * 4) % 13 + 12); }

constexpr const char* kExperts =
    R"({"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": 256, "max_position_embeddings": 256,
 "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "hidden_act": "silu",
 "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 24})";

// Writes the data that selftest_cells() refers to; make_base() makes the base model.
void write_data(const fs::path& folder) {
  std::ofstream text(folder / "text.txt"), rows(folder / "rows.jsonl");
  std::string row;
  for (i64 i = 0; i < kTextBytes; ++i) {
    text.put(letter(i));
    row += letter(i);
    if (letter(i) != 'm') continue;
    rows << Json{{"prompt", row.substr(0, row.size() / 2)}, {"completion", row.substr(row.size() / 2)}}.dump() << "\n";
    row.clear();
  }
  fs::create_directory(folder / "experts");
  std::ofstream(folder / "experts" / "config.json") << kExperts;
}

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "the program printed nothing";
  const size_t begin = text.rfind('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin == std::string::npos ? -1 : static_cast<i64>(begin)));
}

u32 checksum(const fs::path& file) {
  const std::string bytes = read_whole(file).value_or("");
  if (bytes.empty()) throw Error(ErrorCode::data, "[selftest] expected the checkpoint file " + file.string() + ", got none");
  return crc32c(std::as_bytes(std::span(bytes)));
}

std::vector<std::string> arguments(const SelftestCell& cell, const std::string& device, const fs::path& out) {
  std::vector<std::string> all = {"train",
                                  "--sequence-length",
                                  "64",
                                  "--micro-batch-size",
                                  "2",
                                  "--gradient-accumulation-steps",
                                  "2",
                                  "--steps",
                                  std::to_string(kSteps),
                                  "--learning-rate",
                                  "1e-3",
                                  "--device",
                                  device,
                                  "--device-memory",
                                  "96MiB",
                                  "--host-memory",
                                  "96MiB",
                                  "--resume",
                                  "never",
                                  "--out",
                                  out.string()};
  all.insert(all.end(), cell.flags.begin(), cell.flags.end());
  return all;
}

CellResult train(const SelftestCell& cell, const std::string& device, const fs::path& folder) {
  const fs::path out = folder / "run";
  fs::remove_all(out);
  CellResult trained;
  trained.status = run_own_program(arguments(cell, device, out), (folder / "said").string());
  if (trained.status != 0) {
    trained.trouble = last_line(read_whole(folder / "said").value_or(""));
    return trained;
  }
  std::istringstream lines(read_whole(out / "metrics.jsonl").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const Json row = parse_ordered_json(line);
    trained.loss = row.at("loss").dump(), trained.norm = row.at("grad_norm").dump();
    trained.steps += trained.loss + " " + trained.norm + "\n";
  }
  for (const char* name : {kWeightsName, data::kOwnWeights, models::kAdapterName}) {
    if (const fs::path file = checkpoint_path(out, kSteps) / name; fs::exists(file)) trained.weights = checksum(file);
  }
  trained.moments = checksum(checkpoint_path(out, kSteps) / "optimizer.safetensors");
  return trained;
}

// Trains a model with weights, the base for adapters.
void make_base(const std::string& device, const fs::path& folder) {
  const std::string out = (folder / "base-run").string(), said = (folder / "said").string();
  const std::vector<std::string> train = {
      "train",    "--model", "gpt2-tiny", "--data", (folder / "text.txt").string(), "--steps", "1", "--sequence-length", "64",
      "--device", device,    "--out",     out};
  for (const auto& command : {train, std::vector<std::string>{"export", out, "--out", (folder / "base").string()}}) {
    if (run_own_program(command, said) != 0)
      throw Error(ErrorCode::numbers,
                  "[selftest] expected a base model for the runs with adapters, got an error: " + last_line(read_whole(said).value_or("")));
  }
}

struct Row {
  SelftestCell cell;
  CellResult trained;
  std::string verdict;  // "reference", "same bits", "DIFFERS", "FAILED"
};

std::string verdict(const CellResult& trained, const CellResult* reference) {
  if (trained.status != 0) return "FAILED";
  if (reference == nullptr) return "reference";
  return trained == *reference ? "same bits" : "DIFFERS";
}

std::string numbers_of(const CellResult& trained) {
  return fmt::format("loss {}, gradient norm {},\n    weights {:08x}, moments {:08x}", trained.loss, trained.norm, trained.weights,
                     trained.moments);
}

// Returns the table, in which a family's numbers stand once, above its runs. A run has numbers of its own if they differ from these.
std::string as_text(const std::vector<Row>& rows, const std::string& device) {
  std::string text = fmt::format("{} steps on {}, {}: the last loss and gradient norm, checksums of weights and moments", kSteps, device,
                                 optim::to_string(optim::resolve(optim::Isa::best)));
  const Row* before = nullptr;
  for (const Row& row : rows) {
    if (!before || before->cell.family != row.cell.family) text += fmt::format("\n{}", row.cell.family);
    before = &row;
    text += fmt::format("\n  {:<64}{}", row.cell.name, row.verdict);
    if (row.verdict == "FAILED") text += fmt::format("\n    exit status {}: {}", row.trained.status, row.trained.trouble);
    if (row.verdict == "reference" || row.verdict == "DIFFERS") text += "\n    " + numbers_of(row.trained);
  }
  return text;
}

bool is_good(const Row& row) { return row.verdict == "reference" || row.verdict == "same bits"; }

// Says in one line whether the test passed, what was compared and how long it took; after a failure also what to do.
std::string verdict_of(const std::vector<Row>& rows, size_t families, double seconds) {
  const auto bad = static_cast<size_t>(std::ranges::count_if(rows, [](const Row& row) { return !is_good(row); }));
  const std::string time = format_duration(seconds);
  if (bad == 0)
    return fmt::format(
        "selftest passed: in each of {} families the losses, gradient norms, weights and moments of all runs have the same "
        "bits ({} runs, {})",
        families, rows.size(), time);
  return fmt::format(
      "selftest FAILED: {} of {} runs have other bits than the first of their family, or ended with an error ({}): do not "
      "trust results of this machine; attach this table and the output of spillway doctor to a bug report",
      bad, rows.size(), time);
}

std::string as_json(const std::vector<Row>& rows) {
  Json all = Json::array();
  for (const Row& row : rows) {
    all.push_back({{"family", row.cell.family},
                   {"name", row.cell.name},
                   {"flags", row.cell.flags},
                   {"status", row.trained.status},
                   {"loss", row.trained.loss},
                   {"grad_norm", row.trained.norm},
                   {"weights_crc32c", row.trained.weights},
                   {"moments_crc32c", row.trained.moments},
                   {"verdict", row.verdict}});
  }
  return all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

int run_selftest(const SelftestConfig& given, Console& console, const Host& host) {
  ResourceConfig config;
  config.device = given.device;
  resolve_device(config, look_at_gpus(config, 0));
  install_stop_handlers();
  const auto begin = std::chrono::steady_clock::now();
  const auto scratch = host.env("SLURM_TMPDIR");
  const Folder folder(!given.nvme.empty() ? fs::path(given.nvme.front().path) : scratch ? fs::path(*scratch) : fs::temp_directory_path());
  write_data(folder.path());
  console.progress("training a base model for the runs with adapters");
  make_base(*config.device, folder.path());
  std::vector<Row> rows;
  std::map<std::string, CellResult> references;  // first result of each family
  std::set<std::string> families;
  const std::vector<SelftestCell> cells = selftest_cells(folder.path().string());
  for (const SelftestCell& cell : cells) {
    console.progress(fmt::format("{} of {}: {}, {}", rows.size() + 1, cells.size(), cell.family, cell.name));
    const CellResult trained = train(cell, *config.device, folder.path());
    if (stop_requested()) {  // the trained process got the signal, too
      console.end_progress();
      console.log(fmt::format("stopped by {}: {} of {} runs were done, no files are left", stop_signal(), rows.size(), cells.size()));
      return kInterrupted;
    }
    const auto reference = references.find(cell.family);
    families.insert(cell.family);
    rows.push_back({cell, trained, verdict(trained, reference == references.end() ? nullptr : &reference->second)});
    if (trained.status == 0) references.try_emplace(cell.family, trained);
  }
  console.end_progress();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  console.result([&] { return as_json(rows); },
                 [&] { return as_text(rows, *config.device) + "\n" + verdict_of(rows, families.size(), seconds); });
  for (const Row& row : rows) {
    if (!is_good(row))
      throw Error(ErrorCode::numbers, "[selftest] " + row.cell.family + ", " + row.cell.name +
                                          ": expected the same bits as in the family's first line, got " +
                                          (row.verdict == "FAILED" ? "a failure" : "other bits"));
  }
  return 0;
}

}  // namespace spillway::app
