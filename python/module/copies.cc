#include "python/module/copies.h"

#include <string>
#include <utility>

#include "python/module/arguments.h"
#include "python/module/errors.h"

namespace spillway::python {
namespace {

constexpr std::pair<const char*, const char*> kInstead[] = {
    {"Tensor", "clone() is a copy in memory, numpy() an array that can be pickled"},
    {"Model", "save(folder) writes it, Model(folder) reads it"},
    {"Optimizer", "save(file) writes its state, load(file) reads it"},
    {"Training", "make another Trainer with the same flags: it goes on with the run"},
    {"no_grad", "make another"},
    {"StepEvent", "take its numbers"},
    {"ValidationEvent", "take its numbers"},
    {"SaveEvent", "take its numbers"},
    {"TrainingResult", "take its paths"},
};

}  // namespace

void refuse_copies(nb::module_& module) {
  for (const auto& [name, instead] : kInstead) {
    const nb::object kind = module.attr(name);
    const auto refuse = [name = name, instead = instead](const nb::args&) {
      throw WrongType(std::string("[copy] expected an object that can be copied or pickled, got a ") + name + ": " + instead);
    };
    nb::setattr(kind, "__reduce_ex__", nb::cpp_function(refuse));
  }
}

}  // namespace spillway::python
