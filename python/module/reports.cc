// Binds plan(), status() and doctor(): each returns its report as the dictionary or list that --json would print, and as text.
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/commands/findings.h"
#include "app/commands/plan_report.h"
#include "app/commands/status_report.h"
#include "python/module/interpreter.h"
#include "python/module/runtime.h"
#include "python/module/settings.h"
#include "trainer/node/failure.h"

namespace spillway::python {
namespace {

using Json = nlohmann::ordered_json;

struct Answer {
  Json values;
  std::string text;
};

// Returns a text as a Python string. It may contain a path, whose bytes need not be UTF-8.
nb::object shown_text(const std::string& text) {
  return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

nb::object object_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::object: {
      nb::dict all;
      for (const auto& [key, one] : value.items()) all[shown_text(key)] = object_of(one);
      return all;
    }
    case Json::value_t::array: {
      nb::list all;
      for (const Json& one : value) all.append(object_of(one));
      return all;
    }
    case Json::value_t::string:
      return shown_text(value.get_ref<const std::string&>());
    case Json::value_t::boolean:
      return nb::bool_(value.get<bool>());
    case Json::value_t::number_integer:
      return nb::int_(value.get<i64>());
    case Json::value_t::number_unsigned:
      return nb::int_(value.get<u64>());
    case Json::value_t::number_float:
      // JSON has no numbers that are not finite, so these become None.
      return std::isfinite(value.get<double>()) ? nb::object(nb::float_(value.get<double>())) : nb::none();
    default:
      return nb::none();
  }
}

// Runs make() without the GIL, and returns its result as Python objects. A failure raises the exception that corresponds to the command's
// exit status.
template <class Make>
nb::tuple answered(const Make& make) {
  check_process();
  Answer answer;
  {
    const UnderWay used;
    const Unlocked unlocked;
    try {
      answer = make();
    } catch (const std::exception&) {
      const trainer::Failure failure = trainer::failure_of(std::current_exception());
      throw Error(failure.code, failure.text);
    }
  }
  return nb::make_tuple(object_of(answer.values), shown_text(answer.text));
}

nb::tuple plan(const nb::dict& arguments) {
  const trainer::Settings settings = command_settings(trainer::Command::plan, arguments);
  return answered([&]() -> Answer {
    const app::PlanReport report = app::make_plan(std::get<trainer::PlanConfig>(settings), [](const std::string&) {});
    return {app::plan_json(report), app::plan_text(report)};
  });
}

nb::tuple status(const nb::dict& arguments) {
  const trainer::Settings settings = command_settings(trainer::Command::status, arguments);
  return answered([&]() -> Answer {
    const trainer::RunStatus status = trainer::read_run_status(std::get<trainer::StatusConfig>(settings).run);
    return {app::status_json(status), app::status_text(status)};
  });
}

nb::tuple doctor(const nb::dict& arguments) {
  const trainer::Settings settings = command_settings(trainer::Command::doctor, arguments);
  return answered([&]() -> Answer {
    const std::vector<app::Finding> findings = app::examine(std::get<trainer::DoctorConfig>(settings), trainer::Host{});
    return {app::findings_json(findings), app::findings_text(findings)};
  });
}

}  // namespace

void bind_reports(nb::module_& module) {
  module.def("_plan", plan, nb::arg("arguments"), nb::sig("def _plan(arguments: dict) -> tuple[dict, str]"));
  module.def("_status", status, nb::arg("arguments"), nb::sig("def _status(arguments: dict) -> tuple[dict, str]"));
  module.def("_doctor", doctor, nb::arg("arguments"), nb::sig("def _doctor(arguments: dict) -> tuple[list, str]"));
}

}  // namespace spillway::python
