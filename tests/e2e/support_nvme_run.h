// Declares what the tests of a run with all of its state on nvme share: its command line, and a fixture that compares runs.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/e2e/support_program.h"

namespace spillway::test {

constexpr int kSteps = 30;

inline Args on_nvme(const std::string& out, const std::string& overlap, const std::string& nvme = "scratch") {
  return small_run(out, kSteps, "16MiB",
                   {"--checkpoint-every", "100000", "--nvme", nvme, "--place-parameters", "nvme", "--place-gradients", "nvme",
                    "--place-optimizer", "nvme", "--optimizer-overlap", overlap});
}

struct NvmeRun : testing::Test {
  Workplace at;
  NvmeRun() { at.write_text("text.txt", 60000); }

  std::string final_file(const std::string& out, const char* file) const {
    return at.read(out + "/checkpoints/step-000000" + std::to_string(kSteps) + "/" + file);
  }
  void expect_same_run(const std::string& got, const std::string& want) const {
    EXPECT_EQ(numbers_of(at.metrics(got)), numbers_of(at.metrics(want))) << got;
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_GT(final_file(want, file).size(), 100'000u);
      EXPECT_TRUE(final_file(got, file) == final_file(want, file)) << got << ", " << file;
    }
  }

  // Returns the store's file of the only run that has one in that scratch folder, or an empty path if there is none yet.
  std::filesystem::path store(const std::string& scratch = "scratch") const {
    std::error_code none_yet;
    for (const auto& folder : std::filesystem::directory_iterator(at / scratch, none_yet)) return folder.path() / "tiles";
    return {};
  }
};

}  // namespace spillway::test
