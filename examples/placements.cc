// Lesson: a flag decides where weights and optimizer state are stored, and it changes no result. One small model is trained three times:
// with everything in device memory; with weights and optimizer state in host memory; and with the optimizer state in a file (nvme). The
// losses agree bit for bit.
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <vector>

#include "trainer/trainer.h"

using namespace spillway;
namespace fs = std::filesystem;

namespace {

using Words = std::vector<std::string>;

std::vector<double> losses(const fs::path& folder, const std::string& name, const Words& placement) {
  Words flags{"--model",   "gpt2-tiny", "--data", (folder / "text.txt").string(), "--sequence-length", "64", "--steps", "4",
              "--threads", "2",         "--out",  (folder / name).string()};
  flags.insert(flags.end(), placement.begin(), placement.end());
  Trainer training(trainer::train_settings(flags));
  std::vector<double> losses;
  training.callbacks.on_step = [&](const trainer::StepEvent& e) { losses.push_back(e.loss); };
  std::vector<std::string> lines;
  trainer::LineMessages messages([&](std::string_view line) { lines.emplace_back(line); });
  training.fit({}, messages);
  std::cout << std::setw(14) << name << ":" << std::setprecision(17);
  for (const double loss : losses) std::cout << "  " << loss;
  // Prints the lines of the plan that name the tiers of the weights and of the optimizer state.
  std::cout << "\n";
  for (const std::string& line : lines) {
    if (line.starts_with("  optimizer state") || line.starts_with("  weights  ")) std::cout << "  " << line << "\n";
  }
  return losses;
}

}  // namespace

int main() {
  const fs::path folder = fs::temp_directory_path() / "spillway_example_placements";
  fs::remove_all(folder);
  fs::create_directories(folder);
  std::ofstream text(folder / "text.txt");
  for (int line = 0; line < 300; ++line) text << line << " times " << line << " is " << line * line << ".\n";
  text.close();

  const auto device = losses(folder, "all on device", {"--place-parameters", "device", "--place-optimizer", "device"});
  const auto host = losses(folder, "on the host", {"--place-parameters", "host", "--place-optimizer", "host", "--host-memory", "256MiB"});
  const auto nvme =
      losses(folder, "in a file", {"--place-optimizer", "nvme", "--nvme", (folder / "scratch").string(), "--host-memory", "256MiB"});
  const bool same = device == host && device == nvme;
  std::cout << (same ? "the same bits\n" : "they differ\n");
  return same ? 0 : 1;
}
