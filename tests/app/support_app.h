// What the tests of src/app share: the program in process, scratch folders, and machines made of files.
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
/// The whole program in process.
Outcome run_app(const std::vector<std::string>& args, const Host& host = {});

using test::TemporaryFolder;

/// A machine that is nothing but files and variables.
class FakeHost {
 public:
  /// 16 GiB, 12 GiB of them available, cores 0-7.
  FakeHost();
  FakeHost& file(const std::string& name, const std::string& text);
  FakeHost& env(const std::string& name, const std::string& value);
  Host host() const;

 private:
  TemporaryFolder root_;
  std::map<std::string, std::string> env_;
};

/// Flags through parsing, merging with `config_file` (when not empty) and all checks, on a machine without variables.
Settings settings_of(Command command, const std::vector<std::string>& args, const std::string& config_file = "");
TrainConfig train_config(std::vector<std::string> args);

/// The message of the Error that `call` throws; "no error" when it throws none.
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
