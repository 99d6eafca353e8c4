// Lesson: run `spillway train` from a program, with callbacks. The run is planned, under a memory budget, with checkpoints and resume. The
// program is told of its steps, validations and saves, keeps the best checkpoint, and stops early when the validation loss no longer falls.
// Usage: example_trainer [TEXT]; the run's folder is a temporary one.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "base/error.h"
#include "trainer/trainer.h"

using namespace spillway;
namespace fs = std::filesystem;

namespace {

std::string text_file(const fs::path& folder, int argc, char** argv) {
  if (argc > 1) return argv[1];
  const fs::path path = folder / "text.txt";
  std::ofstream out(path);
  for (int line = 0; line < 500; ++line) out << line % 50 << " bottles of milk on the wall, take one down.\n";
  return path.string();
}

}  // namespace

int main(int argc, char** argv) {
  const fs::path folder = fs::temp_directory_path() / "spillway_example_trainer";
  fs::remove_all(folder);
  fs::create_directories(folder);
  // The arguments are the flags of `spillway train`. Flags that the command would refuse are refused here.
  Trainer training(trainer::train_settings({"--model",
                                            "gpt2-tiny",
                                            "--data",
                                            text_file(folder, argc, argv),
                                            "--validation-fraction",
                                            "0.1",
                                            "--validate-every",
                                            "5",
                                            "--sequence-length",
                                            "64",
                                            "--micro-batch-size",
                                            "4",
                                            "--steps",
                                            "30",
                                            "--learning-rate",
                                            "1e-3",
                                            "--device-memory",
                                            "256MiB",
                                            "--out",
                                            (folder / "run").string()}));
  training.callbacks.on_step = [](const trainer::StepEvent& e) {
    if (e.step % 5 == 0) std::cout << "step " << e.step << " of " << e.steps << "  loss " << e.loss << "\n";
  };
  training.callbacks.on_validate = [](const trainer::ValidationEvent& e) {
    std::cout << "  held-out loss " << e.loss << (e.best ? ", the best so far" : "") << "\n";
  };
  training.callbacks.on_save = [](const trainer::SaveEvent& e) { std::cout << "  saved " << e.checkpoint.filename() << "\n"; };
  training.callbacks.keep_best = true;
  training.callbacks.patience = 3;

  const trainer::TrainingResult result = training.fit();
  std::cout << (result.finished ? "finished" : "stopped") << ", the newest checkpoint is " << result.checkpoint.filename() << "\n";
  return result.finished ? 0 : 1;
}
