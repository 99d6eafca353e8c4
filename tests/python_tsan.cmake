# ThreadSanitizer over the Python module: several threads on the same tensors, models, optimizers and runs. The module is not built by default:
#   cmake --preset tsan -DSPILLWAY_UNITY=ON && ninja -C build/tsan spillway_python && ctest --test-dir build/tsan -L tsan_python
# Python itself and NumPy are not instrumented: what they do to memory is not looked at, the locks that they take are.
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libtsan.so OUTPUT_VARIABLE libtsan OUTPUT_STRIP_TRAILING_WHITESPACE)
# The interpreter itself: what pyenv puts on PATH is a shell script, which does not run under the preloaded library.
execute_process(COMMAND ${Python_EXECUTABLE} -c "import sys; print(sys.executable)" OUTPUT_VARIABLE python OUTPUT_STRIP_TRAILING_WHITESPACE)
set(tests ${PROJECT_SOURCE_DIR}/python/tests)
add_test(NAME python/SoakThreads.HaveNoRaces
         COMMAND ${CMAKE_COMMAND} -E env LD_PRELOAD=${libtsan} ${python} -m pytest -q -x -p no:cacheprovider ${tests}/test_threads.py
                 ${tests}/test_autograd.py ${tests}/test_models.py)
set_tests_properties(python/SoakThreads.HaveNoRaces PROPERTIES LABELS tsan_python TIMEOUT 3600
  ENVIRONMENT "TSAN_OPTIONS=halt_on_error=1:exitcode=66:ignore_noninstrumented_modules=1:report_signal_unsafe=0;PYTHONPATH=${PROJECT_BINARY_DIR}/python:${PROJECT_SOURCE_DIR}/build/tools/python;PYTHONDONTWRITEBYTECODE=1")
