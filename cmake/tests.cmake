# Every *_test.c below src/ and tests/ is a cmocka program; every *_test.sh below tests/ is a script that finds the command in
# $LOCKSTEP. A test's label is its folder. Tests that want real data find it through $LOCKSTEP_DATA, which CTest passes on.
#
# Slow tests are labeled `long` as well if shorter ones check most of the same: `./dev test` leaves them out, `./dev test --all`
# runs them, and begins with them. They repeat it on emulated GPUs, in many processes, for every network or against other
# frameworks.
set(LK_LONG_TESTS
    alloc_failure_test cuda_central_storage_test cuda_conformance_test cuda_device_data_test
    cuda_in_place_kernels_test cuda_nan_guard_test cuda_networks_agree_test cuda_recorded_links_allreduce_test cuda_recorded_test
    cuda_sharded_state_test cuda_test cudnn_plans_test custom_training_example_test defaults_test elastic_hosts_test
    emulated_conformance_gradient_test emulated_executor_test engine_stress_test export_c_test export_peers_test
    give_up_test gpu_check_test hosts_test launch_interrupt_test launch_restart_test launch_roles_test
    launch_sharded_test links_allreduce_test networks_agree_test own_data_training_test package_test parameter_server_lost_test
    parameter_server_resume_test pjrt_conformance_test pjrt_training_test processes_cuda_test processes_pjrt_test
    recompute_training_test report_browser_test resume_records_test resume_settings_test simulate_test torch_agreement_test
    tpu_compile_test)

pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka)
if(LK_SANITIZE OR NOT ONEDNN_FOUND) # slower, as plain C kernels are
  set(LK_TEST_TIMEOUT 1800)
else()
  set(LK_TEST_TIMEOUT 900)
endif()

function(lk_test name label)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${LK_TEST_TIMEOUT} SKIP_RETURN_CODE 77)
endfunction()

# The CUDA plug-in that tests run on the processor: the only C++ here.
check_language(CXX)
if(CMAKE_CXX_COMPILER)
  enable_language(CXX)
  # A plug-in in C++, in the folder of the tests.
  function(lk_cxx_plugin name)
    add_library(${name} MODULE ${ARGN})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(${name} PRIVATE ${CMAKE_DL_LIBS})
    if(NOT LK_SANITIZE)
      target_link_options(${name} PRIVATE LINKER:--no-undefined)
    endif()
    set_target_properties(${name} PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF
                          CXX_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  endfunction()
  add_subdirectory(tests/cuda_emulated)
  add_subdirectory(tests/cuda_recorder)
  add_subdirectory(tests/cuda_counter)
else()
  message(STATUS "CUDA: no emulation for tests: no C++ compiler")
endif()

# A PJRT plug-in for tests.
add_library(lockstep_pjrt_test MODULE tests/pjrt_plugin/pjrt_test_plugin.c)
target_include_directories(lockstep_pjrt_test PRIVATE src)
set_target_properties(lockstep_pjrt_test PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)

add_subdirectory(tests/faults)
if(TARGET lockstep)
  add_subdirectory(tests/soak soak) # build/tests/soak is the program
endif()

if(CMOCKA_FOUND)
  if(TARGET lockstep_emulated)
    target_link_libraries(lockstep_emulated PUBLIC lockstep_static)
    target_link_libraries(lockstep_emulatedbf16 PUBLIC lockstep_emulated)
    target_link_libraries(lockstep_emulatedamxbf16 PUBLIC lockstep_emulatedbf16)
  else()
    list(FILTER LK_TESTS EXCLUDE REGEX "/(bf16_training|equal_bits_bf16|tile_products|vector_words)_test")
  endif()
  lk_programs(tests lockstep_static ${LK_TESTS})
  foreach(source ${LK_TESTS})
    get_filename_component(name ${source} NAME_WE)
    get_filename_component(folder ${source} DIRECTORY)
    file(RELATIVE_PATH label ${PROJECT_SOURCE_DIR} ${folder})
    string(REGEX REPLACE "^src/" "" label ${label})
    target_include_directories(${name} PRIVATE src tests/support)
    target_link_libraries(${name} PRIVATE PkgConfig::CMOCKA $<TARGET_NAME_IF_EXISTS:lockstep_emulatedamxbf16>)
    target_compile_definitions(${name} PRIVATE LK_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
    lk_test(${name} ${label} ${name})
  endforeach()

  if(LK_SANITIZE MATCHES address)
    foreach(name alloc_failure_test audit_test sharded_state_test) # scripts start these with mpirun
      target_sources(${name} PRIVATE tests/support/keep_libraries.c)
    endforeach()
  endif()
  if(TARGET soak_objects)
    target_link_libraries(soak_options_test PRIVATE soak_objects)
  endif()
  add_dependencies(pjrt_test lockstep_pjrt_test)
  set_tests_properties(pjrt_test PROPERTIES ENVIRONMENT "LOCKSTEP_TEST_PJRT_PLUGIN=$<TARGET_FILE:lockstep_pjrt_test>")

  lk_test(pjrt_conformance_test tests conformance_test)
  # It compiles thousands of modules.
  set_tests_properties(pjrt_conformance_test PROPERTIES ENVIRONMENT "LOCKSTEP_TEST_DEVICES=2xpjrt:0" TIMEOUT 3600)

  if(TARGET lockstep_emulated)
    foreach(isa avx512bf16 emulatedbf16)
      add_library(vector_words_${isa} STATIC tests/emulated/vector_words.c)
      lk_for_isa(vector_words_${isa} ${isa})
      target_link_libraries(vector_words_test PRIVATE vector_words_${isa})
    endforeach()
    foreach(isa amxbf16 emulatedamxbf16)
      add_library(tile_products_${isa} STATIC tests/emulated/tile_products.c)
      lk_for_isa(tile_products_${isa} ${isa})
      target_link_libraries(tile_products_test PRIVATE tile_products_${isa})
    endforeach()

    # The same tests on emulated wide vectors: see tests/emulated.
    foreach(source src/cpu/cpu_bf16_test.c src/cpu/cpu_choice_test.c src/cpu/cpu_fused_test.c src/cpu/cpu_test.c
                   src/dist/sum/product_sum_test.c src/program/keep_test.c tests/engine/conformance_gradient_test.c tests/engine/conformance_test.c tests/engine/executor_test.c)
      get_filename_component(name ${source} NAME_WE)
      set(name emulated_${name})
      add_executable(${name} ${source} tests/emulated/use_emulated_kernels.c)
      target_include_directories(${name} PRIVATE src tests/support)
      target_link_libraries(${name} PRIVATE lockstep_static lockstep_emulatedamxbf16 PkgConfig::CMOCKA m)
      set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
      lk_test(${name} tests ${name})
    endforeach()
  endif()
else()
  list(LENGTH LK_TESTS missing)
  message(WARNING "cmocka was not found: ${missing} test programs are left out (Debian and Ubuntu: libcmocka-dev)")
endif()

if(TARGET lockstep)
  file(GLOB LK_SCRIPTS CONFIGURE_DEPENDS tests/*_test.sh tests/*/*_test.sh)
  foreach(script ${LK_SCRIPTS})
    get_filename_component(name ${script} NAME_WE)
    lk_test(${name} tests bash ${script})
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "LOCKSTEP=$<TARGET_FILE:lockstep>")
  endforeach()
endif()

# Sweeps of the faults of which faults_test takes a sample. Three take every fifth: most calls of launch only watch
# processes, and a checkpoint has a thousand, each followed by a resumed run. Sanitizers do not work with preloaded libraries.
if(TARGET lockstep)
  foreach(scenario train checkpoint export evaluate launch roles)
    lk_test(faults_${scenario}_sweep_test tests bash tests/faults/faults_test.sh ${scenario})
    set_tests_properties(faults_${scenario}_sweep_test PROPERTIES
      ENVIRONMENT "LOCKSTEP=$<TARGET_FILE:lockstep>;LOCKSTEP_TEST_FAULTS=$<IF:$<IN_LIST:${scenario},checkpoint;launch;roles>,5,1>"
      WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} TIMEOUT 1800 LABELS "tests;long" COST 1000)
  endforeach()
  if(LK_SANITIZE)
    foreach(name faults_test power_loss_test faults_train_sweep_test faults_checkpoint_sweep_test
                 faults_export_sweep_test faults_evaluate_sweep_test faults_launch_sweep_test
                 faults_roles_sweep_test)
      set_tests_properties(${name} PROPERTIES DISABLED TRUE)
    endforeach()
  endif()
endif()

include(cmake/fuzz.cmake)

# The CUDA backend on the emulated plug-in.
if(TARGET lockstep_cuda_emulated)
  set(recorded "LOCKSTEP_CUDA_PLUGIN=$<TARGET_FILE:lockstep_cuda_recorder>"
      "LOCKSTEP_CUDA_RECORDED=$<TARGET_FILE:lockstep_cuda_emulated>")
  if(CMOCKA_FOUND)
    set_tests_properties(cuda_recorder_test PROPERTIES ENVIRONMENT "${recorded}")
    set_tests_properties(links_allreduce_test PROPERTIES ENVIRONMENT
      "LOCKSTEP_CUDA_PLUGIN=$<TARGET_FILE:lockstep_cuda_emulated>;LOCKSTEP_EMULATED_GPUS=3")
    set_tests_properties(second_gpu_test PROPERTIES ENVIRONMENT
      "LOCKSTEP_CUDA_PLUGIN=$<TARGET_FILE:lockstep_cuda_emulated>")
    lk_test(cuda_recorded_links_allreduce_test tests links_allreduce_test)
    set_tests_properties(cuda_recorded_links_allreduce_test PROPERTIES ENVIRONMENT "${recorded};LOCKSTEP_EMULATED_GPUS=3")
    foreach(name branches_test conformance_test device_data_test labels_test prepare_images_test)
      lk_test(cuda_${name} tests ${name})
      set_tests_properties(cuda_${name} PROPERTIES ENVIRONMENT
        "LOCKSTEP_CUDA_PLUGIN=$<TARGET_FILE:lockstep_cuda_emulated>;LOCKSTEP_TEST_DEVICES=2xcuda:0")
    endforeach()
    foreach(name central_storage_test nan_guard_test sharded_state_test)
      lk_test(cuda_${name} tests ${name})
      set_tests_properties(cuda_${name} PROPERTIES ENVIRONMENT
        "LOCKSTEP_CUDA_PLUGIN=$<TARGET_FILE:lockstep_cuda_emulated>;LOCKSTEP_TEST_KIND=cuda:0")
    endforeach()
    foreach(name fuse_copy_test fuse_head_test fuse_norm_test in_place_kernels_test merge_test neighbors_test)
      lk_test(cuda_${name} tests ${name})
      set_tests_properties(cuda_${name} PROPERTIES ENVIRONMENT
        "LOCKSTEP_CUDA_PLUGIN=$<TARGET_FILE:lockstep_cuda_emulated>;LOCKSTEP_TEST_DEVICES=cuda:0")
    endforeach()
    lk_test(cuda_networks_agree_test tests networks_agree_test)
    lk_test(cuda_small_networks_agree_test tests networks_agree_test lenet keras-cnn fast-cnn kinds residual squeeze-excite)
    set_tests_properties(cuda_networks_agree_test cuda_small_networks_agree_test PROPERTIES TIMEOUT 3600 ENVIRONMENT
      "LOCKSTEP_CUDA_PLUGIN=$<TARGET_FILE:lockstep_cuda_emulated>;LOCKSTEP_TEST_DEVICES=cuda:0")
    lk_test(cuda_recorded_branches_test tests branches_test)
    set_tests_properties(cuda_recorded_branches_test PROPERTIES ENVIRONMENT "${recorded};LOCKSTEP_TEST_DEVICES=2xcuda:0")
  endif()
  if(TARGET lockstep)
    set_tests_properties(cuda_test digests_test gpu_check_test PROPERTIES ENVIRONMENT
      "LOCKSTEP=$<TARGET_FILE:lockstep>;LOCKSTEP_CUDA_EMULATED=$<TARGET_FILE:lockstep_cuda_emulated>;LOCKSTEP_CUDA_INCOMPLETE=$<TARGET_FILE:lockstep_cuda_incomplete>;LOCKSTEP_EMULATED_NVML=$<TARGET_FILE_DIR:lockstep_emulated_nvml>")
    set_tests_properties(cuda_recorded_test PROPERTIES ENVIRONMENT "LOCKSTEP=$<TARGET_FILE:lockstep>;${recorded}")
  endif()
endif()

# Plans of the real cuDNN for GPUs that are not there.
set(stub ${CUDAToolkit_LIBRARY_DIR}/stubs/libcuda.so)
if(TARGET lockstep_cuda AND CMAKE_NM AND EXISTS ${stub})
  set(source ${PROJECT_SOURCE_DIR}/tests/gpu/stand_in_driver.c)
  file(STRINGS ${source} own REGEX "^int cu")
  list(TRANSFORM own REPLACE "^int (cu[A-Za-z0-9_]+).*" "\\1")
  execute_process(COMMAND ${CMAKE_NM} -D --defined-only ${stub} OUTPUT_VARIABLE names)
  string(REGEX MATCHALL "cu[A-Z][A-Za-z0-9_]*" names "${names}")
  list(REMOVE_ITEM names ${own})
  list(REMOVE_DUPLICATES names)
  list(TRANSFORM names REPLACE "(.+)" "FAILS(\\1)\n" OUTPUT_VARIABLE lines)
  file(WRITE ${PROJECT_BINARY_DIR}/tests/stand_in/stand_in_driver.inc ${lines})
  add_library(stand_in_driver SHARED ${source})
  target_include_directories(stand_in_driver PRIVATE ${PROJECT_BINARY_DIR}/tests/stand_in)
  target_compile_options(stand_in_driver PRIVATE -Wno-missing-prototypes)
  set_target_properties(stand_in_driver PROPERTIES OUTPUT_NAME cuda SOVERSION 1 C_VISIBILITY_PRESET default
                        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/stand_in)
  lk_programs(tests lockstep_static tests/gpu/cudnn_plans.c)
  target_sources(cudnn_plans PRIVATE src/cuda/plugin/gpu_conv_plan.c src/cuda/plugin/gpu_library_errors.c)
  target_include_directories(cudnn_plans PRIVATE src)
  target_include_directories(cudnn_plans SYSTEM PRIVATE ${LK_CUDA_INCLUDE_DIRS})
  target_link_libraries(cudnn_plans PRIVATE ${CUDNN_LIBRARY} CUDA::cublasLt)
  add_dependencies(cudnn_plans stand_in_driver)
  lk_test(cudnn_plans_test tests cudnn_plans ${PROJECT_SOURCE_DIR}/tests/gpu/gpus)
  set_tests_properties(cudnn_plans_test PROPERTIES TIMEOUT 3600 ENVIRONMENT
    "LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/tests/stand_in:${CUDAToolkit_LIBRARY_DIR}")
endif()

lk_test(layers tools ${PROJECT_SOURCE_DIR}/tools/check_layers ${PROJECT_SOURCE_DIR})
lk_test(names tools ${PROJECT_SOURCE_DIR}/tools/check_names ${PROJECT_SOURCE_DIR})
if(NOT LK_SANITIZE)
  lk_test(exports tools ${PROJECT_SOURCE_DIR}/tools/check_exports $<TARGET_FILE:lockstep_shared>)
endif()

foreach(name ${LK_LONG_TESTS})
  if(TEST ${name})
    get_property(labels TEST ${name} PROPERTY LABELS)
    set_property(TEST ${name} PROPERTY LABELS ${labels} long)
    set_property(TEST ${name} PROPERTY COST 100)
    if(LK_SANITIZE)
      set_property(TEST ${name} PROPERTY TIMEOUT 7200)
    endif()
  endif()
endforeach()
