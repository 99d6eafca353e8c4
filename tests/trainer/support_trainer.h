// Declares what the tests of src/trainer and src/app share: scratch folders, fake machines made of files, and settings from flags.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "trainer/settings/given.h"

namespace spillway::trainer {

using test::TemporaryFolder;

/// A fake machine: a folder that stands for "/" (its /proc and /sys files are plain text) and a set of environment variables.
class FakeHost {
 public:
  /// The machine starts with 16 GiB of memory, 12 GiB of them available, and may use cores 0-7.
  FakeHost();
  FakeHost& file(const std::string& name, const std::string& text);
  FakeHost& env(const std::string& name, const std::string& value);
  Host host() const;

 private:
  TemporaryFolder root_;
  std::map<std::string, std::string> env_;
};

/// Parses flags, merges them with `config_file` (if that is not empty) and runs all checks, on a machine with no environment variables set.
Settings settings_of(Command command, const std::vector<std::string>& args, const std::string& config_file = "");
TrainConfig train_config(std::vector<std::string> args);

/// Returns the message of the exception that `call` throws, or "no error" if it throws none.
template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace spillway::trainer
