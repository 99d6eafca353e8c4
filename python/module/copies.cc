#include "python/module/copies.h"

#include <string>
#include <utility>

#include "python/module/arguments.h"
#include "python/module/errors.h"

namespace spillway::python {
namespace {

constexpr std::pair<const char*, const char*> kInstead[] = {
    {"Tokenizer", "read it again from its files"},
    {"Model", "use save(folder) to write it and Model(folder) to read it"},
    {"Optimizer", "use save(file) to write its state and load(file) to read it"},
    {"Training", "make another Trainer with the same flags, which continues the run"},
    {"Batch", "use numpy() for copies of its tensors"},
    {"_NoGrad", "make another one"},
    {"StepEvent", "copy its numbers instead"},
    {"ValidationEvent", "copy its numbers instead"},
    {"SaveEvent", "copy its numbers instead"},
    {"Result", "copy its paths instead"},
};

}  // namespace

void refuse_copies(nb::module_& module) {
  for (const auto& [name, instead] : kInstead) {
    const nb::object kind = module.attr(name);
    const auto refuse = [name = name, instead = instead](const nb::args&) {
      throw WrongType(std::string("[copy] expected an object that can be copied or pickled, got a ") + (name + (name[0] == '_')) + ": " +
                      instead);
    };
    nb::setattr(kind, "__reduce_ex__", nb::cpp_function(refuse));
  }
}

}  // namespace spillway::python
