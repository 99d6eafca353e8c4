// Runs the commands of the program without a new process and returns what they would print.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <sstream>

#include "app/entry.h"
#include "python/module/arguments.h"
#include "python/module/model.h"
#include "trainer/node/own_program.h"
#include "trainer/node/version.h"

namespace spillway::python {
namespace {

nb::bytes bytes_of(const std::ostringstream& text) {
  const std::string all = text.str();
  return nb::bytes(all.data(), all.size());
}

nb::tuple run_command(const std::vector<nb::bytes>& words) {
  check_process();
  std::vector<std::string> args;
  for (const nb::bytes& word : words) args.emplace_back(word.c_str(), word.size());
  std::ostringstream out, err, text;
  int status = 0;
  {
    const UnderWay used;
    const Unlocked unlocked;
    status = app::run(args, app::Streams{.out = out, .err = err, .text = &text});
  }
  return nb::make_tuple(status, bytes_of(out), bytes_of(err), bytes_of(text));
}

}  // namespace

void bind_commands(nb::module_& module) {
  module.attr("__version__") = std::string(trainer::kVersion);
  module.def("_run_command", run_command, nb::arg("words"),
             nb::sig("def _run_command(words: list[bytes]) -> tuple[int, bytes, bytes, bytes]"),
             "Returns the exit status, stdout and stderr, and the plain-text form of an answer in JSON.");
  module.def(
      "_set_own_program", [](const nb::object& program) { trainer::set_own_program(path_of(program)); }, nb::arg("program"));
}

}  // namespace spillway::python
