// Makes the settings of a command from Python's keyword arguments. The option table reads each value with its type; a text is read as on
// the command line.
#pragma once
#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "trainer/settings/given.h"

namespace spillway::python {

namespace nb = nanobind;

/// Returns the arguments as values by option name. A value is a text, a path, a number, a bool, or a list, tuple or dict of them; one that
/// is None is left out. Underscores around a name are dropped, so that a Python keyword can be a name. Throws WrongType or WrongValue,
/// which names the argument, for any other value.
trainer::NamedValues values_of(const nb::dict& arguments);

/// Return the settings of a run of this process; see trainer/train/train.h.
trainer::TrainConfig train_settings(const nb::dict& arguments);
trainer::TrainConfig partial_settings(const nb::dict& arguments);
/// Returns checked settings of another command, with the values of the files that they name. Throws Error(usage) for wrong values.
trainer::Settings command_settings(trainer::Command command, const nb::dict& arguments);

/// Binds plan(), status() and doctor().
void bind_reports(nb::module_& module);

}  // namespace spillway::python
