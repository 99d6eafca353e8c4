// Binds app::Training for Python. Callbacks may raise exceptions, Ctrl-C works, and a function receives the lines that the command would
// print.
#include "python/module/training.h"

#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <csignal>
#include <exception>
#include <ostream>
#include <streambuf>
#include <thread>

#include "python/module/arguments.h"
#include "python/module/model.h"

namespace spillway::python {
namespace {

// A stream buffer that passes each complete line to a Python function.
class Lines final : public std::streambuf {
 public:
  Lines(nb::object hear, Raised& raised) : hear_(std::move(hear)), raised_(raised) {}

 protected:
  int overflow(int c) override {
    if (c == traits_type::eof()) return 0;
    line_ += static_cast<char>(c);
    if (c == '\n') say();
    return c;
  }
  std::streamsize xsputn(const char* text, std::streamsize count) override {
    for (std::streamsize i = 0; i < count; ++i) overflow(static_cast<unsigned char>(text[i]));
    return count;
  }

 private:
  // Passes the line on. An exception is only kept, since code that writes to a stream does not expect one; the run stops at its next step.
  void say() {
    line_.pop_back();
    if (!hear_.is_none()) {
      const Locked locked;
      try {
        call_python([&] { hear_(nb::steal(PyUnicode_DecodeUTF8(line_.data(), static_cast<Py_ssize_t>(line_.size()), "replace"))); });
      } catch (nb::python_error& e) {
        raised_.keep(std::move(e));
      }
    }
    line_.clear();
  }

  const nb::object hear_;
  Raised& raised_;
  std::string line_;
};

std::vector<std::string> words_of(const std::vector<nb::bytes>& words) {
  std::vector<std::string> all;
  for (const nb::bytes& word : words) all.emplace_back(word.c_str(), word.size());
  return all;
}

nb::object path_object(const std::filesystem::path& path) {
  if (path.empty()) return nb::none();
  const std::string& bytes = path.native();
  const nb::object text = nb::steal(PyUnicode_DecodeFSDefaultAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size())));
  return nb::module_::import_("pathlib").attr("Path")(text);
}

// Makes a SIGINT that Python handles known to every thread for its lifetime. Python itself tells only the main thread, which here may wait
// for ranks that are threads.
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
  static inline int users_ = 0;  // accessed under the GIL
  static inline bool installed_ = false;
  static inline std::atomic<bool> came_ = false;
  static inline struct sigaction pythons_ = {};
};

struct Hearers {
  nb::object on_step, on_validate, on_save, results, log;
  i64 patience = 0;
  bool keep_best = false;
};

app::TrainCallbacks callbacks_of(const Hearers& hearers, Raised& raised) {
  app::TrainCallbacks callbacks;
  const auto hear = [&raised]<class Event>(std::function<void(const Event&)>& into, const nb::object& call, const char* name) {
    if (call.is_none()) return;
    into = [&raised, &call, name](const Event& event) { raised.guard(name, [&] { call(nb::cast(event, nb::rv_policy::copy)); }); };
  };
  hear(callbacks.on_step, hearers.on_step, "on_step");
  hear(callbacks.on_validate, hearers.on_validate, "on_validate");
  hear(callbacks.on_save, hearers.on_save, "on_save");
  callbacks.patience = hearers.patience;
  callbacks.keep_best = hearers.keep_best;
  // Python's own signal handlers run here: Ctrl-C raises KeyboardInterrupt, on which the run saves and stops, as the program does on
  // Ctrl-C.
  callbacks.wants_stop = [&raised, caller = std::this_thread::get_id()] {
    const bool elsewhere = std::this_thread::get_id() != caller;
    const Locked locked;
    call_python([&] {
      if (!raised.any() && PyErr_CheckSignals() != 0) raised.keep(nb::python_error());
    });
    return raised.any() || (elsewhere && Interrupts::came());
  };
  callbacks.gives_up = callbacks.wants_stop;
  return callbacks;
}

// Returns the training of a model that the program knows by name.
Trained by_name(const std::vector<std::string>& words) {
  const auto training = std::make_shared<app::Training>(words);
  return {[training](const app::TrainCallbacks& callbacks, Raised&, std::ostream& results, std::ostream& log) {
    training->callbacks = callbacks;
    return training->run(results, log);
  }};
}

app::TrainingResult train(Trained& trained, const Hearers& hearers) {
  check_process();
  check_not_ending("train");
  if (hearers.patience < 0) throw WrongValue("patience: expected 0 or above, got " + std::to_string(hearers.patience));
  if (trained.trains)
    throw Error(
        ErrorCode::usage,
        "[train] expected a Trainer that is not training, got one that is: wait for it to end, or make another Trainer with its own out");
  trained.trains = true;
  Raised raised;
  app::TrainingResult result;
  std::exception_ptr failure;
  {
    const Interrupts interrupts;
    Lines results(hearers.results, raised), log(hearers.log, raised);
    std::ostream to_results(&results), to_log(&log);
    const app::TrainCallbacks callbacks = callbacks_of(hearers, raised);
    const UnderWay used;
    const Unlocked unlocked;
    try {
      result = trained.run(callbacks, raised, to_results, to_log);
    } catch (...) {  // call_python() keeps back the foreign exception by which Python ends a thread
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
  nb::class_<app::StepEvent>(module, "StepEvent", "A completed optimizer step.")
      .def_ro("step", &app::StepEvent::step, "The number of the step, counted from 1.")
      .def_ro("steps", &app::StepEvent::steps, "The number of steps of the whole run.")
      .def_ro("loss", &app::StepEvent::loss, "The mean loss of the global batch, in nats, before the update.")
      .def_ro("grad_norm", &app::StepEvent::grad_norm, "The global gradient norm before clipping.")
      .def_ro("learning_rate", &app::StepEvent::learning_rate)
      .def_ro("seconds", &app::StepEvent::seconds)
      .def_ro("tokens", &app::StepEvent::tokens, "Tokens of this step, without padding; for image models its images.")
      .def_ro("positions", &app::StepEvent::positions, "Tokens and padding of this step.")
      .def_ro("skipped", &app::StepEvent::skipped, "Whether the update was skipped because gradients were not finite.");
  nb::class_<app::ValidationEvent>(module, "ValidationEvent", "The result of a validation.")
      .def_ro("step", &app::ValidationEvent::step)
      .def_ro("loss", &app::ValidationEvent::loss, "The validation loss, in nats.")
      .def_ro("accuracy", &app::ValidationEvent::accuracy, "The accuracy of image models; None for others.")
      .def_ro("best", &app::ValidationEvent::best, "Whether no earlier validation loss of this run was lower.");
  nb::class_<app::SaveEvent>(module, "SaveEvent", "A checkpoint that is durable.")
      .def_ro("step", &app::SaveEvent::step)
      .def_prop_ro(
          "checkpoint", [](const app::SaveEvent& e) { return path_object(e.checkpoint); },
          nb::sig("def checkpoint(self) -> \"pathlib.Path\""));
  nb::class_<app::TrainingResult>(module, "TrainingResult", "The result of train().")
      .def_ro("finished", &app::TrainingResult::finished, "False if the run was stopped; another train() continues it.")
      .def_prop_ro(
          "run", [](const app::TrainingResult& r) { return path_object(r.run); }, nb::sig("def run(self) -> \"pathlib.Path\""))
      .def_prop_ro(
          "checkpoint", [](const app::TrainingResult& r) { return path_object(r.checkpoint); },
          nb::sig("def checkpoint(self) -> \"pathlib.Path | None\""), "The newest checkpoint; None if none was saved.")
      .def("__repr__", [](const app::TrainingResult& r) {
        return std::string("TrainingResult(") + (r.finished ? "finished" : "stopped") + ", run=" + r.run.string() + ")";
      });
  nb::class_<Trained>(module, "Training")
      .def(
          "__init__", [](Trained* self, const std::vector<nb::bytes>& words) { new (self) Trained(by_name(words_of(words))); },
          nb::arg("words"))
      .def(
          "run",
          [](Trained& self, nb::object on_step, nb::object on_validate, nb::object on_save, nb::object results, nb::object log,
             const Whole& patience, const Flag& keep_best) {
            return train(self, {std::move(on_step), std::move(on_validate), std::move(on_save), std::move(results), std::move(log),
                                patience, keep_best});
          },
          nb::arg("on_step").none(), nb::arg("on_validate").none(), nb::arg("on_save").none(), nb::arg("results").none(),
          nb::arg("log").none(), nb::arg("patience"), nb::arg("keep_best"));
}

}  // namespace spillway::python
