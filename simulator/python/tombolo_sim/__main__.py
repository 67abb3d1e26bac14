from tombolo_sim.cli import main

main()
