// Binds spillway::Trainer for Python. Callbacks may raise exceptions, Ctrl-C works, and a function receives the lines that the command
// would print.
#include "python/module/training.h"

#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <exception>
#include <thread>

#include "python/module/arguments.h"
#include "python/module/model.h"
#include "python/module/settings.h"
#include "trainer/trainer.h"

namespace spillway::python {
namespace {

// Returns a function that passes a line of the run to the Python function `hear`. An exception from it is only
// kept, since a thread that reports progress does not expect one; the run stops at its next step.
std::function<void(std::string_view)> lines_to(const nb::object& hear, Raised& raised) {
  if (hear.is_none()) return {};
  return [&hear, &raised](std::string_view line) {
    const Locked locked;
    try {
      call_python([&] { hear(nb::steal(PyUnicode_DecodeUTF8(line.data(), static_cast<Py_ssize_t>(line.size()), "replace"))); });
    } catch (nb::python_error& e) {
      raised.keep(std::move(e));
    }
  };
}

nb::object path_object(const std::filesystem::path& path) {
  if (path.empty()) return nb::none();
  const std::string& bytes = path.native();
  const nb::object text = nb::steal(PyUnicode_DecodeFSDefaultAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size())));
  return nb::module_::import_("pathlib").attr("Path")(text);
}

// Returns a number with five significant digits.
std::string shown(double number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.5g", number);
  return text.data();
}

// Makes a SIGINT that Python handles known to every thread for the lifetime of the object.
// Python itself tells only the main thread, which may be waiting for ranks that are threads.
class Interrupts {
 public:
  Interrupts() {
    if (users_++ > 0) return;
    came_ = false;
    sigaction(SIGINT, nullptr, &pythons_);
    if ((pythons_.sa_flags & SA_SIGINFO) != 0 || pythons_.sa_handler == SIG_DFL || pythons_.sa_handler == SIG_IGN) return;
    struct sigaction ours = pythons_;
    ours.sa_handler = [](int signal) {
      came_ = true;
      pythons_.sa_handler(signal);
    };
    installed_ = sigaction(SIGINT, &ours, nullptr) == 0;
  }
  ~Interrupts() {
    if (--users_ > 0 || !installed_) return;
    sigaction(SIGINT, &pythons_, nullptr);
    installed_ = false;
  }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  static bool came() { return came_; }

 private:
  static inline int users_ = 0;  // the number of Interrupts objects alive; accessed under the GIL
  static inline bool installed_ = false;
  static inline std::atomic<bool> came_ = false;
  static inline struct sigaction pythons_ = {};
};

struct Hearers {
  nb::object on_step, on_validate, on_save, log;
  i64 patience = 0;
  bool keep_best = false;
};

// Sets `stopped` once a callback has returned False.
trainer::TrainCallbacks callbacks_of(const Hearers& hearers, Raised& raised, std::atomic<bool>& stopped) {
  trainer::TrainCallbacks callbacks;
  const auto hear = [&raised, &stopped]<class Event>(std::function<void(const Event&)>& into, const nb::object& call, const char* name) {
    if (call.is_none()) return;
    into = [&raised, &stopped, &call, name](const Event& event) {
      raised.guard(name, [&] {
        if (call(nb::cast(event, nb::rv_policy::copy)).is(nb::bool_(false))) stopped = true;
      });
    };
  };
  hear(callbacks.on_step, hearers.on_step, "on_step");
  hear(callbacks.on_validate, hearers.on_validate, "on_validate");
  hear(callbacks.on_save, hearers.on_save, "on_save");
  callbacks.patience = hearers.patience;
  callbacks.keep_best = hearers.keep_best;
  // This callback runs Python's signal handlers. Ctrl-C raises KeyboardInterrupt there, and the run then saves and stops, as the program
  // does on Ctrl-C.
  callbacks.wants_stop = [&raised, &stopped, caller = std::this_thread::get_id()] {
    const bool elsewhere = std::this_thread::get_id() != caller;
    const Locked locked;
    call_python([&] {
      if (!raised.any() && PyErr_CheckSignals() != 0) raised.keep(nb::python_error());
    });
    return raised.any() || stopped || (elsewhere && Interrupts::came());
  };
  callbacks.gives_up = callbacks.wants_stop;
  return callbacks;
}

// Returns the training of a model that Spillway knows by name.
Trained by_name(trainer::TrainConfig settings) {
  const bool quiet = settings.quiet, json = settings.json;
  const auto training = std::make_shared<Trainer>(settings);
  return {[training](const trainer::TrainCallbacks& callbacks, Raised&, trainer::Messages& messages) {
            training->callbacks = callbacks;
            return training->fit({}, messages);
          },
          quiet, json};
}

trainer::TrainingResult train(Trained& trained, const Hearers& hearers) {
  check_process();
  check_not_ending("train");
  if (hearers.patience < 0) throw WrongValue("patience: expected 0 or above, got " + std::to_string(hearers.patience));
  if (trained.trains)
    throw Error(
        ErrorCode::usage,
        "[train] expected a Trainer that is not training, got one that is: wait for it to end, or make another Trainer with its own out");
  trained.trains = true;
  Raised raised;
  trainer::TrainingResult result;
  std::exception_ptr failure;
  {
    const Interrupts interrupts;
    trainer::LineMessages messages(lines_to(hearers.log, raised), trained.quiet, trained.json);
    std::atomic<bool> stopped = false;
    const trainer::TrainCallbacks callbacks = callbacks_of(hearers, raised, stopped);
    const UnderWay used;
    const Unlocked unlocked;
    try {
      result = trained.run(callbacks, raised, messages);
    } catch (...) {  // call_python() does not let the exception pass by which Python ends a thread
      failure = std::current_exception();
    }
  }
  trained.trains = false;
  raised.rethrow();
  if (failure) std::rethrow_exception(failure);
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  return result;
}

}  // namespace

void bind_training(nb::module_& module) {
  nb::class_<trainer::StepEvent>(module, "StepEvent", "A completed optimizer step.")
      .def_ro("step", &trainer::StepEvent::step, "The number of the step, counted from 1.")
      .def_ro("steps", &trainer::StepEvent::steps, "The number of steps of the whole run.")
      .def_ro("loss", &trainer::StepEvent::loss, "The mean loss of the global batch, in nats, before the update.")
      .def_ro("grad_norm", &trainer::StepEvent::grad_norm, "The global gradient norm before clipping.")
      .def_ro("learning_rate", &trainer::StepEvent::learning_rate)
      .def_ro("seconds", &trainer::StepEvent::seconds)
      .def_ro("tokens", &trainer::StepEvent::tokens, "Tokens of this step, without padding; for image models its images.")
      .def_ro("positions", &trainer::StepEvent::positions, "Tokens and padding of this step.")
      .def_ro("skipped", &trainer::StepEvent::skipped, "Whether the update was skipped because gradients were not finite.")
      .def("__repr__", [](const trainer::StepEvent& e) {
        return "StepEvent(step=" + std::to_string(e.step) + ", steps=" + std::to_string(e.steps) + ", loss=" + shown(e.loss) +
               ", grad_norm=" + shown(e.grad_norm) + ", learning_rate=" + shown(e.learning_rate) + ", seconds=" + shown(e.seconds) +
               ", tokens=" + std::to_string(e.tokens) + (e.skipped ? ", skipped=True)" : ")");
      });
  nb::class_<trainer::ValidationEvent>(module, "ValidationEvent", "The result of a validation.")
      .def_ro("step", &trainer::ValidationEvent::step)
      .def_ro("loss", &trainer::ValidationEvent::loss, "The validation loss, in nats.")
      .def_ro("accuracy", &trainer::ValidationEvent::accuracy, "The accuracy of image models; None for others.")
      .def_ro("best", &trainer::ValidationEvent::best, "Whether no earlier validation loss of this run was lower.")
      .def("__repr__", [](const trainer::ValidationEvent& e) {
        return "ValidationEvent(step=" + std::to_string(e.step) + ", loss=" + shown(e.loss) +
               (e.accuracy ? ", accuracy=" + shown(*e.accuracy) : "") + ", best=" + (e.best ? "True)" : "False)");
      });
  nb::class_<trainer::SaveEvent>(module, "SaveEvent", "A checkpoint that is durable.")
      .def_ro("step", &trainer::SaveEvent::step)
      .def_prop_ro(
          "checkpoint", [](const trainer::SaveEvent& e) { return path_object(e.checkpoint); },
          nb::sig("def checkpoint(self) -> \"pathlib.Path\""))
      .def("__repr__", [](const trainer::SaveEvent& e) {
        return "SaveEvent(step=" + std::to_string(e.step) + ", checkpoint=" + e.checkpoint.string() + ")";
      });
  nb::class_<trainer::TrainingResult>(module, "Result")
      .def_ro("finished", &trainer::TrainingResult::finished)
      .def_prop_ro("run", [](const trainer::TrainingResult& r) { return path_object(r.run); })
      .def_prop_ro("checkpoint", [](const trainer::TrainingResult& r) { return path_object(r.checkpoint); });
  nb::class_<Trained>(module, "Training")
      .def(
          "__init__", [](Trained* self, const nb::dict& arguments) { new (self) Trained(by_name(train_settings(arguments))); },
          nb::arg("arguments"))
      .def(
          "run",
          [](Trained& self, nb::object on_step, nb::object on_validate, nb::object on_save, nb::object log, const Whole& patience,
             const Flag& keep_best) {
            return train(self, {std::move(on_step), std::move(on_validate), std::move(on_save), std::move(log), patience, keep_best});
          },
          nb::arg("on_step").none(), nb::arg("on_validate").none(), nb::arg("on_save").none(), nb::arg("log").none(), nb::arg("patience"),
          nb::arg("keep_best"));
}

}  // namespace spillway::python
