// Declares a way to run the program inside the test process.
#pragma once
#include <string>
#include <vector>

#include "app/entry.h"
#include "app/names/names.h"
#include "tests/trainer/support_trainer.h"

namespace spillway::app {

struct Outcome {
  int status = 0;
  std::string out, err;
};
/// Runs the whole program inside this process, as main() would with the arguments `args`. Returns the exit status and the output.
Outcome run_app(const std::vector<std::string>& args, const Host& host = {});

}  // namespace spillway::app
