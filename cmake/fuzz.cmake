# Fuzz targets: tests/fuzz/NAME_fuzz.c with seeds in tests/fuzz/corpus/NAME. Each gives two programs. fuzz/NAME_changes needs no
# special compiler and runs the seeds and fixed mutations of them. fuzz/NAME needs clang with libFuzzer; for it the parsers are
# compiled again with coverage and sanitizers, and linked in front of the library. As tests both run for seconds; `./dev fuzz`
# runs the second one for longer. For `./dev fuzz --coverage` there is fuzz/NAME_coverage, which reads the seeds and counts lines.

find_program(LK_CLANG NAMES clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14)
set(LK_FUZZ_FLAGS -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all)
if(LK_CLANG AND NOT LK_SANITIZE AND NOT CMAKE_CROSSCOMPILING AND NOT DEFINED LK_HAVE_LIBFUZZER)
  file(WRITE ${PROJECT_BINARY_DIR}/fuzz/try.c
       "int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return n > 9 && d[0]; }\n")
  execute_process(COMMAND ${LK_CLANG} ${LK_FUZZ_FLAGS} ${PROJECT_BINARY_DIR}/fuzz/try.c -o ${PROJECT_BINARY_DIR}/fuzz/try
                  RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(failed)
    message(STATUS "libFuzzer: not found")
    set(LK_HAVE_LIBFUZZER OFF CACHE INTERNAL "clang has libFuzzer")
  else()
    set(LK_HAVE_LIBFUZZER ON CACHE INTERNAL "clang has libFuzzer")
  endif()
endif()

set(LK_FUZZ_LIBRARIES ${ZLIB_LIBRARIES} ${ONEDNN_LIBRARY})
foreach(library XXHASH JANSSON HWLOC CURL CAIRO PNG JPEG ZMQ MICROHTTPD)
  list(APPEND LK_FUZZ_LIBRARIES ${${library}_LINK_LIBRARIES})
endforeach()
list(REMOVE_DUPLICATES LK_FUZZ_LIBRARIES)
if(NOT ONEDNN_FOUND)
  list(FILTER LK_FUZZ_LIBRARIES EXCLUDE REGEX "NOTFOUND")
endif()

# lk_fuzz_program(PROGRAM FLAGS SOURCE…): clang compiles the sources with FLAGS, a list, and links them in front of the library.
function(lk_fuzz_program program flags)
  set(objects "")
  foreach(source ${ARGN})
    get_filename_component(file ${source} NAME_WE)
    get_filename_component(source ${source} ABSOLUTE)
    get_property(defined SOURCE ${source} PROPERTY COMPILE_DEFINITIONS)
    list(TRANSFORM defined PREPEND -D)
    set(object ${program}.${file}.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${LK_CLANG} -std=c11 -O1 -g -D_GNU_SOURCE ${defined} -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/src
              -I${PROJECT_SOURCE_DIR} ${flags} -MD -MF ${object}.d -c ${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d COMMENT "Compiling ${object}" VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  list(TRANSFORM flags REPLACE "fuzzer-no-link" "fuzzer")
  add_custom_command(OUTPUT ${program}
    COMMAND ${LK_CLANG} ${flags} ${objects} $<TARGET_FILE:lockstep_static> ${LK_FUZZ_LIBRARIES} -lpthread -ldl -lm -o ${program}
    DEPENDS ${objects} lockstep_static COMMENT "Linking ${program}" VERBATIM)
endfunction()

# lk_fuzz(NAME SOURCES SOURCE… [WITH SOURCE…] [SEEDS FOLDER…]): SOURCES are what the target tests, WITH more sources of the
# target itself; the folders hold more seeds.
function(lk_fuzz name)
  cmake_parse_arguments(PARSE_ARGV 1 of "" "" "SOURCES;SEEDS;WITH")
  set(folder ${PROJECT_BINARY_DIR}/fuzz)
  set(seeds ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name})
  list(TRANSFORM of_SEEDS PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE more)
  list(APPEND seeds ${more})
  list(JOIN seeds "\n" lines)
  file(WRITE ${folder}/${name}.seeds "${lines}\n") # for ./dev fuzz
  set(target ${PROJECT_SOURCE_DIR}/tests/fuzz/${name}_fuzz.c ${of_WITH})
  add_executable(fuzz_${name} ${target} tests/fuzz/fuzz_main.c)
  target_include_directories(fuzz_${name} PRIVATE src ${PROJECT_SOURCE_DIR})
  target_link_libraries(fuzz_${name} PRIVATE lockstep_static)
  set_target_properties(fuzz_${name} PROPERTIES OUTPUT_NAME ${name}_changes RUNTIME_OUTPUT_DIRECTORY ${folder})
  lk_test(fuzz_${name} fuzz fuzz_${name} ${seeds})
  if(NOT LK_HAVE_LIBFUZZER)
    return()
  endif()

  lk_fuzz_program(${folder}/${name} "-fsanitize=fuzzer-no-link,address,undefined;-fno-sanitize-recover=all" ${target}
                  ${of_SOURCES})
  add_custom_target(libfuzzer_${name} ALL DEPENDS ${folder}/${name})
  set(dictionary ${PROJECT_SOURCE_DIR}/tests/fuzz/dictionaries/${name}.dict)
  if(EXISTS ${dictionary})
    set(dictionary -dict=${dictionary})
  else()
    set(dictionary "")
  endif()
  set(found ${folder}/found/${name})
  file(MAKE_DIRECTORY ${found})
  # A fixed seed: a test's result must not depend on chance. ./dev fuzz searches from fresh seeds. libFuzzer's own exit
  # status for an input that breaks the target is 77, which would skip the test.
  lk_test(libfuzzer_${name} fuzz ${folder}/${name} -seed=1 -max_total_time=2 -timeout=60 -rss_limit_mb=2048 -print_final_stats=1
          -error_exitcode=1
          ${dictionary} -artifact_prefix=${folder}/${name}- ${found} ${seeds})

  lk_fuzz_program(${folder}/${name}_coverage "-fprofile-instr-generate;-fcoverage-mapping" ${target} ${of_SOURCES}
                  tests/fuzz/fuzz_main.c)
  add_custom_target(fuzz_${name}_coverage DEPENDS ${folder}/${name}_coverage)
  add_dependencies(fuzz_coverage fuzz_${name}_coverage)
endfunction()

add_custom_target(fuzz_coverage) # all programs that count coverage

lk_fuzz(idx SOURCES src/data/formats/idx.c src/data/formats/byte_source.c)
lk_fuzz(gzip SOURCES src/data/formats/idx.c src/data/formats/byte_source.c)
lk_fuzz(picture SEEDS tests/data/pictures
        SOURCES src/data/pictures/image.c src/data/pictures/picture.c src/data/pictures/png_codec.c src/data/pictures/jpeg_codec.c src/data/pictures/pnm_codec.c
                src/data/pictures/resize.c)
lk_fuzz(csv SOURCES src/data/formats/csv.c src/data/samples.c src/data/formats/byte_source.c)
lk_fuzz(model SEEDS examples/models
        SOURCES src/nn/model_file.c src/nn/model_words.c src/nn/model.c src/nn/model_build.c src/nn/model_names.c)
lk_fuzz(cluster SOURCES src/dist/service/cluster.c)
lk_fuzz(safetensors SOURCES src/io/safetensors.c)
lk_fuzz(checkpoint SOURCES src/train/checkpoint/checkpoint_folder.c src/train/checkpoint/checkpoint_read.c src/train/checkpoint/checkpoint_files.c src/train/checkpoint/checkpoint_state.c
                src/io/safetensors.c)
lk_fuzz(records SOURCES src/report/run_records.c src/report/record_file.c src/io/json.c src/io/bytes.c)
lk_fuzz(page SOURCES src/report/page_evaluation.c src/report/page_trace.c src/report/step_records.c
             src/report/record_file.c)
lk_fuzz(site SOURCES src/report/live/live_site.c src/report/live/live_runs.c src/report/live/live_row.c)
lk_fuzz(cifar SOURCES src/data/formats/cifar.c src/data/samples.c src/data/formats/byte_source.c)
if(ONEDNN_FOUND)
  set(choice src/cpu/cpu_choice.c)
endif()
lk_fuzz(tuning SOURCES src/io/tuning_file.c src/core/tuning.c src/ops/conv_problem.c ${choice})
lk_fuzz(scaling SOURCES src/report/scaling_file.c src/report/scaling_model.c)
lk_fuzz(packed SOURCES src/data/formats/packed_file.c src/data/samples.c src/data/formats/byte_source.c)
set(PS src/train/parameter_server)
lk_fuzz(server WITH tests/fuzz/fuzz_post.c
        SOURCES ${PS}/ps_server.c ${PS}/ps_store.c ${PS}/ps_apply.c ${PS}/ps_pulse.c ${PS}/ps_chief_call.c src/dist/service/wire.c)
lk_fuzz(chief WITH tests/fuzz/fuzz_post.c
        SOURCES ${PS}/ps_coordinator.c ${PS}/ps_members.c ${PS}/ps_registry.c ${PS}/ps_work.c ${PS}/ps_seats.c ${PS}/handouts.c
                ${PS}/ps_worker_records.c ${PS}/ps_report.c src/dist/service/wire.c)
lk_fuzz(snapshot SOURCES ${PS}/ps_snapshot.c ${PS}/ps_store.c ${PS}/ps_apply.c)
lk_fuzz(worker WITH tests/fuzz/fuzz_post.c
        SOURCES ${PS}/ps_worker.c ${PS}/ps_membership.c ${PS}/ps_client.c ${PS}/ps_chief_call.c ${PS}/ps_pulse.c
                ${PS}/ps_layout.c ${PS}/placement.c src/dist/service/wire.c)
if(ZMQ_FOUND)
  lk_fuzz(requests SOURCES src/dist/transports/zmq.c src/dist/service/wire.c)
endif()
lk_fuzz(ranks WITH cli/launch/rank_record.c cli/launch/launch_ranks.c cli/launch/rank_output.c cli/launch/launch_mpirun.c
                   cli/launch/descendants.c)
lk_fuzz(hosts WITH cli/launch/launch_hosts.c)
lk_fuzz(agreement SOURCES src/train/plan/agreement.c src/dist/service/wire.c)
lk_fuzz(heartbeat SOURCES src/base/heartbeat_watch.c)
lk_fuzz(messages SOURCES src/dist/process/shared_messages.c)
lk_fuzz(network SOURCES src/dist/service/network_messages.c src/dist/service/wire.c)
lk_fuzz(notes SOURCES src/dist/process/group_notes.c)
lk_fuzz(keys SOURCES src/dist/service/keys.c)
lk_fuzz(options SOURCES src/base/options.c src/base/number.c src/base/nearest.c src/base/quote.c src/core/device_spec.c src/optim/schedule.c
                        src/data/convert.c src/data/loading/augment_parse.c src/train/plan/plan.c src/train/plan/strategy_options.c)
lk_fuzz(resume SOURCES src/train/resume.c src/train/fit.c src/train/fit_state.c src/train/checkpoint/callback_state.c
                       src/train/checkpoint/checkpoint_callback.c src/train/checkpoint/checkpoint_state.c
                       src/train/checkpoint/checkpoint_read.c src/train/checkpoint/replicas_state.c
                       src/train/callbacks/stop_on_plateau.c src/train/callbacks/stop_at_accuracy.c
                       src/train/callbacks/epoch_csv.c src/train/callbacks/json_lines.c src/train/callbacks/curves.c
                       src/train/callbacks/history.c src/train/callbacks/step_points.c src/train/callbacks/step_rows.c src/io/append_file.c src/io/charts/axis.c src/io/charts/line_chart.c)
lk_fuzz(weights SOURCES src/train/initial_weights.c src/nn/torch_names.c src/io/safetensors.c)
