
/*
 * Initialisers: `oxp_tensor_in x = OXP_TENSOR_IN_INIT;`, then set what you need.
 */

#define OXP_TENSOR_IN_INIT \
  { (uint32_t)sizeof(oxp_tensor_in), 0, NULL, 0, NULL, 0, 0 }

#define OXP_TENSOR_OUT_INIT \
  { (uint32_t)sizeof(oxp_tensor_out), 0, NULL, 0, 0, NULL, 0, 0 }

#define OXP_NAMED_IN_INIT \
  { NULL, 0, OXP_TENSOR_IN_INIT }

#define OXP_NAMED_OUT_INIT \
  { NULL, 0, OXP_TENSOR_OUT_INIT }

#define OXP_FILE_INIT \
  { NULL, 0, NULL, 0 }

#define OXP_PORT_INFO_INIT \
  { (uint32_t)sizeof(oxp_port_info), 0, NULL, 0, NULL, 0, NULL, NULL, 0, 0 }

#define OXP_SESSION_STATS_INIT \
  { (uint32_t)sizeof(oxp_session_stats), 0, 0 }

#define OXP_COMPONENT_INFO_INIT \
  { (uint32_t)sizeof(oxp_component_info), 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0, 0, 0, 0, 0 }

#define OXP_PIPELINE_INFO_INIT \
  { (uint32_t)sizeof(oxp_pipeline_info), 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0, 0, 0, 0 }

#define OXP_EVENT_INIT \
  { (uint32_t)sizeof(oxp_event), 0, 0, 0, NULL, 0, 0.0f, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, NULL, 0, 0 }

#define OXP_RUN_STATS_INIT \
  { (uint32_t)sizeof(oxp_run_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* The layouts are part of the ABI: a compiler that lays them out otherwise stops here. */
#if defined(__cplusplus) && __cplusplus >= 201103L
#define OXP_LAYOUT_(type, size) static_assert(sizeof(type) == (size), "layout of " #type)
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define OXP_LAYOUT_(type, size) _Static_assert(sizeof(type) == (size), "layout of " #type)
#endif
#ifdef OXP_LAYOUT_
OXP_LAYOUT_(oxp_tensor_in, 40);
OXP_LAYOUT_(oxp_tensor_out, 48);
OXP_LAYOUT_(oxp_named_in, 56);
OXP_LAYOUT_(oxp_named_out, 64);
OXP_LAYOUT_(oxp_file, 32);
OXP_LAYOUT_(oxp_port_info, 64);
OXP_LAYOUT_(oxp_session_stats, 16);
OXP_LAYOUT_(oxp_component_info, 112);
OXP_LAYOUT_(oxp_pipeline_info, 112);
OXP_LAYOUT_(oxp_load_progress, 40);
OXP_LAYOUT_(oxp_event, 136);
OXP_LAYOUT_(oxp_run_stats, 88);
#undef OXP_LAYOUT_
#endif
