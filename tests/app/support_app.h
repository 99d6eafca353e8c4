// Declares what the tests of src/app share: a way to run the program inside the test
// process, scratch folders, and fake machines whose /proc and /sys are files of the test.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "app/entry.h"
#include "app/flags/given.h"
#include "tests/support/temporary_folder.h"

namespace spillway::app {

struct Outcome {
  int status = 0;
  std::string out, err;
};
/// Runs the whole program inside this process, as main() would with `args`, and returns its exit status and what it wrote.
Outcome run_app(const std::vector<std::string>& args, const Host& host = {});

using test::TemporaryFolder;

/// Fakes a machine by a folder that stands for "/" (its /proc and /sys files are plain text) and a set of environment variables.
class FakeHost {
 public:
  /// Makes a machine with 16 GiB of memory, 12 GiB of them available, which lets a process use cores 0-7.
  FakeHost();
  FakeHost& file(const std::string& name, const std::string& text);
  FakeHost& env(const std::string& name, const std::string& value);
  Host host() const;

 private:
  TemporaryFolder root_;
  std::map<std::string, std::string> env_;
};

/// Parses flags, merges them with `config_file` (if that is not empty) and runs all checks, as on a machine without environment variables.
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

}  // namespace spillway::app
